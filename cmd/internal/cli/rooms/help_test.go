package rooms

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
)

// TestHelp: every command has a short, imperative description, and the first screen of help lists few of them.
func TestHelp(t *testing.T) {
	t.Parallel()
	dialect := regexp.MustCompile(`(?i)\b(what|who|tells?|told|so much)\b`)
	var walk func(path string, c *cobra.Command)
	walk = func(path string, c *cobra.Command) {
		path = strings.TrimSpace(path + " " + c.Name())
		switch short := c.Short; {
		case c.Hidden:
			return
		case short == "" || len(short) > 60 || short[:1] != strings.ToUpper(short[:1]) || dialect.MatchString(short):
			t.Errorf("%s: %q: want an imperative with a noun, of at most 60 characters", path, short)
		case !c.HasSubCommands() && c.RunE == nil:
			t.Errorf("%s does nothing", path)
		}
		for _, o := range c.Commands() {
			walk(path, o)
		}
	}
	listed := map[string]bool{}
	for _, newCommand := range Commands {
		c := newCommand(&cli.App{})
		listed[c.Name()] = true
		walk("", c)
		if c.GroupID == "" {
			t.Errorf("%s is in no group of help", c.Name())
		}
	}
	if len(listed) > 26 {
		t.Errorf("%d commands at the top level, want at most 26: %v", len(listed), listed)
	}
}
