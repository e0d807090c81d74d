package runtime

import "slices"

// The subcommands of the program at GuardPath in a container that waits for its user, see package keeper.
const (
	KeepCommand  = "keep"
	EnterCommand = "enter"
)

// Keeper returns the entrypoint of a container that only waits until it is stopped. Spec.Argv has the command that the
// container would run otherwise after it.
func Keeper() []string { return []string{GuardPath, KeepCommand} }

// Argv joins entrypoint and arguments with those of the image, as engines do. If the entrypoint is a keeper alone, it
// precedes the command of a container without an entrypoint of its own.
func (s Spec) Argv(entrypoint, cmd []string) []string {
	if slices.Equal(s.Entrypoint, Keeper()) {
		s.Entrypoint = nil
		return append(Keeper(), s.Argv(entrypoint, cmd)...)
	}
	argv := slices.Clone(entrypoint)
	if s.Entrypoint != nil {
		argv = slices.Clone(s.Entrypoint)
	}
	switch {
	case len(s.Args) > 0:
		argv = append(argv, s.Args...)
	case s.Entrypoint == nil:
		argv = append(argv, cmd...)
	}
	return argv
}
