package templatecmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/job/jobfile"
	"github.com/starling-network/starling/node/job/template"
	"github.com/starling-network/starling/node/wholefile"
)

// listed is a template in a list.
type listed struct {
	Name   string `json:"name"`
	Kind   string `json:"kind,omitempty"`
	Run    string `json:"smoke,omitempty"`
	About  string `json:"about"`
	Digest string `json:"digest"`
}

func newLs(a *cli.App) *cobra.Command {
	f := finder{app: a}
	c := &cobra.Command{
		Use:   "ls [INDEX]",
		Short: "List built-in templates, or those of an index",
		Long: `Lists the built-in templates, or those of an index at a path or https:// URL. SMOKE is "ran" if the
short run of this version of the template has passed in a test, on a machine without a GPU, with an image of packages
of Debian or PyPI; the public image that is the default was not tried. Others are "not run here", with their needs:
only their form is checked.`,
		Example: `  starling job template ls
  starling job template ls https://example.org/templates/index.json --accept-publisher KEY`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("ls takes at most one index, got %q", args[1])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			var all []listed
			var err error
			if len(args) == 0 {
				all, err = builtin()
			} else {
				all, err = f.list(c, args[0])
			}
			if err != nil {
				return err
			}
			return a.Show(all, func(t *cli.Table) {
				if len(args) > 0 {
					t.Head("NAME", "ABOUT")
					for _, l := range all {
						t.Row(l.Name, l.About)
					}
					return
				}
				t.Head("NAME", "KIND", "SMOKE", "ABOUT")
				for _, l := range all {
					t.Row(l.Name, l.Kind, l.Run, l.About)
				}
			})
		},
	}
	f.flags(c)
	return c
}

func builtin() (all []listed, err error) {
	for _, name := range template.BuiltinNames() {
		t, err := template.Builtin(name)
		if err != nil {
			return nil, err
		}
		d, err := t.Describe()
		if err != nil {
			return nil, err
		}
		all = append(all, listed{name, d.Kind, smokeText(t, d), t.About(), t.Digest().String()})
	}
	return all, nil
}

// smokeText reports whether the smoke run of a built-in template passed.
func smokeText(t template.Template, d jobfile.Template) string {
	if t.Ran() {
		return "ran"
	}
	text := "not run here"
	if len(d.Smoke.Needs) > 0 {
		text += ": needs " + strings.Join(d.Smoke.Needs, ", ")
	}
	return text
}

func (f *finder) list(c *cobra.Command, at string) (all []listed, err error) {
	i, err := f.index(c.Context(), at)
	for _, e := range i.Templates {
		all = append(all, listed{Name: e.Name, About: e.About, Digest: e.Digest.String()})
	}
	return all, err
}

// shown is a template in detail.
type shown struct {
	Name       string              `json:"name"`
	Kind       string              `json:"kind"`
	Digest     sign.Hash           `json:"digest"`
	Smoke      string              `json:"smoke,omitempty"`
	Readme     string              `json:"readme"`
	Parameters []jobfile.Parameter `json:"parameters"`
	Job        string              `json:"job"`
	Dockerfile string              `json:"dockerfile,omitempty"`
}

func newShow(a *cli.App) *cobra.Command {
	f := finder{app: a}
	var dir string
	c := &cobra.Command{
		Use:   "show TEMPLATE",
		Short: "Show a template's parameters and files",
		Long: `Shows the README, the parameters and the job file of a template, as they are. --to writes its files to a
new directory, in which they can be changed and run with --template ./DIRECTORY.`,
		Example: `  starling job template show jupyter
  starling job template show jupyter --to mine && starling run --template ./mine --dry-run --max-price 1`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := f.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			d, err := t.Describe()
			if err != nil {
				return inTemplate(t.Name, err)
			}
			if dir != "" {
				if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
					return cli.Usagef("--to: %s exists already", dir)
				}
				if err := t.Write(dir); err != nil {
					return err
				}
				a.Say("written to %s", dir)
			}
			s := shown{t.Name, d.Kind, t.Digest(), "", string(t.File(template.FileReadme)), d.Parameters,
				string(t.File(template.FileJob)), string(t.File(template.FileDockerfile))}
			if !t.foreign {
				s.Smoke = smokeText(t.Template, d)
			}
			return a.Show(s, func(tab *cli.Table) { showTable(tab, s) })
		},
	}
	f.flags(c)
	c.Flags().StringVar(&dir, "to", "", "new directory to write the files to")
	return c
}

func showTable(t *cli.Table, s shown) {
	for line := range strings.Lines(strings.TrimSpace(s.Readme)) {
		if rest, ok := strings.CutPrefix(line, "Needs: "); ok {
			t.Row("needs", strings.TrimSpace(rest))
		} else if rest, ok := strings.CutPrefix(line, "Example: "); ok {
			t.Row("example", strings.TrimSpace(rest))
		} else {
			t.Row("template", s.Name+": "+strings.TrimSpace(line))
		}
	}
	t.Row("kind", s.Kind)
	t.Row("digest", s.Digest)
	if s.Smoke != "" {
		t.Row("smoke run", s.Smoke)
	}
	for _, p := range s.Parameters {
		text := p.About
		if p.Input {
			text += " (input)"
		}
		if p.Required {
			text += "; required"
		} else {
			text += "; default " + p.Default
		}
		t.Row("--set "+p.Name, text)
	}
	for i, line := range strings.Split(strings.TrimSpace(s.Job), "\n") {
		title := ""
		if i == 0 {
			title = template.FileJob
		}
		t.Row(title, line)
	}
}

func newCheck(a *cli.App) *cobra.Command {
	f := finder{app: a}
	c := &cobra.Command{
		Use:   "check TEMPLATE",
		Short: "Check a template without running it",
		Long: `Checks the files of a template, with the values of its smoke run: the job file, the parameters and their
use, the README and the Dockerfile. Each problem has its line.`,
		Example: `  starling job template check ./transcode`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := f.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			d, err := t.Check()
			if err != nil {
				return usageIn(t.Name, err)
			}
			l := listed{Name: t.Name, Kind: d.Kind, About: t.About(), Digest: t.Digest().String()}
			return a.Show(l, func(t *cli.Table) {
				t.Row("template", l.Name+": "+l.About)
				t.Row("kind", l.Kind)
				t.Row("digest", l.Digest)
				t.Row("smoke run", "not run by this command")
			})
		},
	}
	f.flags(c)
	return c
}

// usageIn is the error of a template's file.
func usageIn(name string, err error) error {
	if errors.Is(err, template.ErrInvalid) {
		return usage(err)
	}
	return inTemplate(name, err)
}

func newPublish(a *cli.App) *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "publish --to DIRECTORY TEMPLATE…",
		Short: "Sign an index of templates, for a web server",
		Long: `Checks templates in directories, writes an archive of each to DIRECTORY, and index.json, which has their
digests. This peer's key signs the index, for this network. Put DIRECTORY on a web server. An index that is there is
replaced by one with the next sequence number; users do not go back to a lower one.`,
		Example: `  starling job template publish --to public ./transcode ./train
  starling run --template https://example.org/templates/index.json#train --accept-publisher KEY …`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || dir == "" {
				return cli.WithHint(cli.Usagef("publish needs templates, and --to for their index"), "%s", c.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			i, err := publish(a, dir, args)
			if err != nil {
				return err
			}
			return a.Show(i, func(t *cli.Table) {
				t.Row("index", filepath.Join(dir, template.FileIndex))
				t.Row("publisher", i.Publisher)
				t.Row("sequence", i.Sequence)
				for _, e := range i.Templates {
					t.Row("template", fmt.Sprintf("%s, %s", e.Name, e.Digest))
				}
			})
		},
	}
	c.Flags().StringVar(&dir, "to", "", "directory of the index and the archives")
	return c
}

// publish writes the index of templates, after their archives.
func publish(a *cli.App, dir string, from []string) (template.Index, error) {
	var none template.Index
	g, err := a.Genesis()
	if err != nil {
		return none, err
	}
	home, err := a.Home()
	if err != nil {
		return none, err
	}
	key, _, err := config.LoadKeys(home, config.Config{})
	if err != nil {
		return none, usage(err)
	}
	var all []template.Template
	for _, d := range from {
		t, err := template.Open(d)
		if err != nil {
			return none, usage(err)
		}
		if _, err := t.Check(); err != nil {
			return none, usageIn(t.Name, err)
		}
		all = append(all, t)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return none, err
	}
	file, sequence := filepath.Join(dir, template.FileIndex), uint64(1)
	switch old, err := cli.ReadFile(file, template.MaxIndex); {
	case err == nil:
		i, err := template.ParseIndex(old, g.Domain())
		if err != nil || i.Publisher != key.Key() {
			return none, cli.Usagef("--to: %s is not an index of this peer's key: %v", file, err)
		}
		sequence = i.Sequence + 1
	case !errors.Is(err, fs.ErrNotExist):
		return none, err
	}
	i, err := template.NewIndex(g.Domain(), key, sequence, all)
	if err != nil {
		return none, usage(err)
	}
	for _, t := range all {
		at := filepath.Join(dir, template.Entry{Digest: t.Digest()}.Archive())
		if err := os.WriteFile(at, t.Archive(), 0o644); err != nil {
			return none, err
		}
	}
	return i, wholefile.Write(file, i.Marshal(), 0o644)
}
