// Package cli is starling's command line: the common parts of all commands (paths of a peer's files, output formats,
// errors and exit codes) and the commands themselves, a small file for each.
//
// A new command is a function `func newX(a *App) *cobra.Command` in a file of its own, listed in commands. It returns
// its error; Main prints it as `starling: message` with one `hint:` line and turns it into the exit code. It shows its
// output through App.Show, which knows tables, JSON and YAML.
package cli
