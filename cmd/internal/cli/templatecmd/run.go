package templatecmd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/node/job"
)

const runLong = `

With --template NAME instead of MODULE or IMAGE the command runs a template, with values of its parameters:
--set NAME=VALUE. Other flags replace fields of its job, and add inputs, outputs and variables; arguments after --
replace its arguments. starling job template ls lists the built-in ones; --dry-run shows the job and its cost. Those of
others need --budget, as they set the ranks and the run time.`

// NewRun makes the command `starling run`, with templates. attend serves the user of -it.
func NewRun(a *cli.App, attend jobcmd.Attend) *cobra.Command {
	c, run := jobcmd.RunOver(a, attend)
	c.Use = "run [flags] MODULE|IMAGE|--template NAME [-- ARGS]"
	c.Long += runLong
	c.Example += `
  starling run --max-price 0.05 --template ffmpeg -i holiday.mov:/in/video --save results`
	o := finder{app: a}
	o.flags(c)
	var name string
	var set []string
	f := c.Flags()
	f.StringVar(&name, "template", "", "built-in template, ./DIRECTORY or INDEX#NAME to run")
	f.StringArrayVar(&set, "set", nil, "value of a template's parameter, NAME=VALUE; may be repeated")
	argsOf, plain := c.Args, c.RunE
	c.Args = func(c *cobra.Command, args []string) error {
		if !f.Changed("template") {
			if f.Changed("set") || f.Changed("accept-publisher") {
				return cli.Usagef("--set and --accept-publisher are of a template: want --template NAME")
			}
			return argsOf(c, args)
		}
		if at := c.ArgsLenAtDash(); len(args) > 0 && at != 0 {
			return cli.WithHint(cli.Usagef("run --template does not take %q", args[0]),
				"arguments of the program come after --: starling run --template %s -- %s", name, args[0])
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if !f.Changed("template") {
			return plain(c, args)
		}
		found, err := o.find(c.Context(), name)
		if err != nil {
			return err
		}
		token, err := jobcmd.Token(a)
		if err != nil {
			return err
		}
		dry := f.Lookup("dry-run").Value.String() == "true"
		if found.foreign && !token.Free && !dry && !f.Changed("budget") {
			return cli.WithHint(cli.Usagef("--budget: missing: the template %s sets the ranks and the run time", name),
				"--dry-run shows them")
		}
		values, err := parseSet(set)
		if err != nil {
			return err
		}
		dir, err := found.place(a)
		if err != nil {
			return err
		}
		_, draft, err := found.Read(values, dir)
		if err == nil {
			err = run(c.Context(), draft, args, func(j job.Job) error {
				if !dry {
					return nil
				}
				return showJob(a, j)
			})
		}
		return inTemplate(found.Name, err)
	}
	return c
}

// showJob writes the job of a template to standard error, with all of its fields.
func showJob(a *cli.App, j job.Job) error {
	to := *a
	to.Out = a.Err
	if err := to.Output.Set("yaml"); err != nil {
		return err
	}
	return to.Show(j, nil)
}

// parseSet reads the values of --set.
func parseSet(texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if _, twice := out[name]; !ok || twice {
			return nil, cli.Usagef("--set: %.80q: want NAME=VALUE, each name once", text)
		}
		out[name] = value
	}
	return out, nil
}

// inTemplate puts the template's file before each problem that has a line.
func inTemplate(name string, err error) error {
	return cli.InFile(name+"/job.yaml", err)
}
