package jobfile

import (
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/starling-network/starling/node/cluster"
)

// cluster reads the spec of a file of kind Cluster.
func (f *file) cluster(n ast.Node, path string) {
	j, c := &f.job, f.job.Cluster
	f.fields(n, path, fields{
		"size":         f.numberTo(&j.Count),
		"engine":       f.engine,
		"command":      f.args(&c.Command),
		"autostop":     f.spanTo(&c.Autostop),
		"image":        f.image,
		"workDir":      f.textTo(&j.WorkDir),
		"network":      func(n ast.Node, field string) { set(f, n, field, &j.Network, asNetwork) },
		"registryAuth": f.registry,
		"env":          func(n ast.Node, field string) { j.Env = f.texts(n, field) },
		"secrets":      f.secrets,
		"resources":    f.resources,
		"placement":    f.placement,
		"inputs":       f.inputs(&j.Inputs),
		"outputs":      f.outputs,
		"checkpoint":   checkpointTo(f),
		"scratch":      func(n ast.Node, field string) { set(f, n, field, &j.ScratchMiB, parseMiB) },
		"shmSize":      func(n ast.Node, field string) { set(f, n, field, &j.ShmMiB, parseMiB) },
		"restart":      f.restart,
		"timeouts":     f.timeouts,
		"keep":         f.spanTo(&j.Keep),
		"probes":       func(n ast.Node, field string) { set(f, n, field, &j.Probes, asProbes) },
		"payment":      f.payment,
		"webhooks":     f.webhooks,
		// Of a job, and refused with the reason by checkCluster.
		"module": f.textTo(&j.Module), "args": f.args(&j.Args), "entrypoint": f.args(&j.Entrypoint), "rounds": f.rounds,
		"health":    f.health,
		"guardians": f.numberTo(&j.Guardians), "standbys": f.numberTo(&j.Standbys),
		"verify": func(n ast.Node, field string) { set(f, n, field, &j.Verify, asVerify) },
		"count":  func(n ast.Node, field string) { f.wrong(n, field, "write size for the members of a cluster") },
	}, map[string]string{
		"head":    "another kind of head; the most reliable member is the head",
		"volumes": "volumes; write inputs and outputs", "priority": "priorities", "constraints": "constraints",
	})
}

// engine reads a name, or a mapping of the name and options.
func (f *file) engine(n ast.Node, path string) {
	c := f.job.Cluster
	if _, fields := n.(ast.MapNode); !fields {
		if text, ok := f.text(n, path); ok {
			c.Engine = text
		}
		return
	}
	f.mapping(n, path, func(key string, _, value ast.Node, field string) {
		text, ok := f.text(value, field)
		switch {
		case !ok:
		case key == "name":
			c.Engine = text
		default:
			if c.Options == nil {
				c.Options = map[string]string{}
			}
			c.Options[key] = text
		}
	})
	if f.where[path+".name"] == nil {
		f.wrong(n, path+".name", "missing: want %s", strings.Join(cluster.Names(), ", "))
	}
}
