// Package cli is starling's command line: what is common to all commands (where a peer's files are, output formats,
// errors and exit codes) and the commands themselves, a small file for each.
//
// A new command is a function `func newX(a *App) *cobra.Command` in a file of its own, listed in commands. It returns
// its error; Main prints it as `starling: message` with one `hint:` line and turns it into the exit code. It shows what
// it has through App.Show, which knows tables, JSON and YAML.
package cli
