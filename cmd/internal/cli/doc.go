// Package cli is the frame of starling's command line: parts of all commands. A room of commands is a package below:
//
//	rooms ──▶ jobcmd ──▶ livecmd   jobs, and jobs while they run
//	      ──▶ clustercmd           clusters, with jobcmd and livecmd
//	      ──▶ peercmd              this peer, light client, other peers
//	      ──▶ marketcmd            offers of others and of this peer
//	      ──▶ moneycmd             wallet, escrows, stake, rewards
//	      ──▶ networkcmd           genesis, program, rules, votes
//	      ──▶ proofcmd             receipts, audits, evidence
//	      ──▶ testnetcmd           networks of peers on this machine
//
// App finds the peer's files (paths.go), reaches its API or starts a light client (light.go), shows results as table,
// JSON or YAML (output.go), and turns errors into `starling: message`, one `hint:` line and an exit code (errors.go).
//
// A command is a function `func NewX(a *cli.App) *cobra.Command` in its room, and listed in rooms.Commands or below a
// noun. A command that asks the peer for one thing and shows it is data: see Ask.
package cli
