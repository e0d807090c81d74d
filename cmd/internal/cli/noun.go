package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// Noun makes c a command without a function of its own, in a group of help.
func Noun(group string, c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.GroupID, c.Args = group, OnlyCommands
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	for _, below := range commands {
		below.GroupID = "" // groups are for the commands of the root
	}
	c.AddCommand(commands...)
	return c
}

// OnlyCommands refuses arguments of a command that only has subcommands, and suggests the intended command.
func OnlyCommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("%q is not a command of %s", args[0], c.CommandPath())
	if meant := meantBy(c, args); meant != "" {
		err = fmt.Errorf("%w, did you mean %s?", err, meant)
	}
	return &Error{Code: ExitUsage, Err: err, Hint: c.CommandPath() + " --help"}
}

// meantBy returns the path of the command to suggest for args. Their first name is no subcommand of c. It is the first
// match of:
//
//   - a command with that former name or synonym (SuggestFor)
//   - the only command of that name below c, then a noun that had the name, then the only command elsewhere
//   - a command of a similar name, subcommands of c before others, and the same name before longer ones
//
// It returns "" if there is no match.
func meantBy(c *cobra.Command, args []string) string {
	if args[0] == "version" {
		return c.Root().CommandPath() + " --version"
	}
	all := below(c.Root())
	var same, commands, nouns []*cobra.Command
	for _, o := range all {
		synonym := slices.Contains(o.SuggestFor, args[0])
		if !synonym && o.Name() != args[0] {
			continue
		}
		if len(args) > 1 {
			for _, child := range o.Commands() {
				if child.Name() == args[1] || slices.Contains(child.SuggestFor, args[1]) {
					return child.CommandPath()
				}
			}
		}
		switch {
		case !synonym:
			same = append(same, o)
		case o.HasSubCommands():
			nouns = append(nouns, o)
		default:
			commands = append(commands, o)
		}
	}
	var within []*cobra.Command
	for _, o := range below(c) {
		if o.Name() == args[0] {
			within = append(within, o)
		}
	}
	for _, found := range [][]*cobra.Command{commands, within, nouns, same} {
		if len(found) == 1 {
			return found[0].CommandPath()
		}
	}
	if len(args[0]) < 3 { // every name of two letters is similar to it
		return ""
	}
	if len(same) > 0 {
		return same[0].CommandPath()
	}
	for _, parent := range append([]*cobra.Command{c}, all...) {
		parent.SuggestionsMinimumDistance = 2
		if near := parent.SuggestionsFor(args[0]); len(near) > 0 {
			return parent.CommandPath() + " " + near[0]
		}
	}
	return ""
}

// below lists the visible commands below c in breadth-first order.
func below(c *cobra.Command) (all []*cobra.Command) {
	for _, o := range c.Commands() {
		if !o.Hidden {
			all = append(all, o)
		}
	}
	for i := 0; i < len(all); i++ {
		for _, o := range all[i].Commands() {
			if !o.Hidden {
				all = append(all, o)
			}
		}
	}
	return all
}
