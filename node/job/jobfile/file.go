// Package jobfile reads jobs as people write them: as files in YAML, and as the flags of the command line. Both make
// the same job.Job by the same parsers. Each problem names its field, with line and column, or its flag.
package jobfile

import (
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
)

// APIVersion and Kind begin a job file.
const (
	APIVersion  = "v1"
	Kind        = "Job"
	KindCluster = "Cluster"
)

// Parse reads a job file for a network with this token. The error is an *Error that lists every problem with its field,
// line and column; it is ErrInvalid, or ErrNotSupported for fields of later versions.
//
//	apiVersion: v1
//	kind: Job
//	metadata: {name: lm, labels: {team: a}}
//	spec:
//	  module: build/lm.wasm               # a WASI program, or cid:bafkrei…
//	  image: ghcr.io/acme/lm:v1           # or a container image, by tag or digest, with
//	  entrypoint: [python, -u]            #   the program instead of the image's own
//	  workDir: /app                       #   where it starts
//	  network: none                       #   none or internet
//	  registryAuth: docker                #   your docker login, or {username: me, passwordFrom: env:TOKEN}
//	  health: {http: {port: 8080, path: /healthz}, interval: 30s, timeout: 30s, retries: 3}   # or command or tcp
//	  args: [train, --steps, "200"]       # "command" is the same field
//	  env: {SEED: "1"}
//	  secrets:
//	  - {name: HF_TOKEN, env: HF_TOKEN, from: env:HF_TOKEN}   # a variable of the program
//	  - {name: id.pem, from: file:id.pem}                     # /run/secrets/id.pem
//	  count: 5                            # ranks, taken all or none
//	  resources: {class: cpu, units: 1, cpu: 0.5, memory: 256Mi, disk: 1Gi}   # of every unit at least
//	  resources: {gpus: "h100:8,vram>=80"}                                    # or GPUs, for each rank
//	  resources: {class: cpu, unproven: true}                                 # also units without a passed audit
//	  placement: {regions: [eu-west], exclude: [<provider key>], spread: peer}
//	  inputs: [{src: "shards/{rank}.bin", dst: /data/shard.bin}, {src: "s3://bucket/model/", dst: /model}]
//	  outputs: [{src: /out}]
//	  volumes: {data: /data, model: "/model:ro"}              # from starling volume create, at its provider
//	  checkpoint: {path: /ckpt, every: 5m}                    # where a moved rank continues from; see Checkpoint
//	  copies: {count: 3, for: 30d, maxPrice: 0.0002}          # of the outputs, encrypted, at other peers; see Copies
//	  scratch: 50Gi                       # space at /scratch, on the lease's disk, discarded at the end
//	  shmSize: 8Gi                        # /dev/shm of a container, part of its memory; half of it by default
//	  rounds:
//	    count: 4
//	    carry: /carry
//	    reduce: {module: build/average.wasm, args: [], inputs: [{src: init.bin, dst: /init/w.bin}]}
//	  restart: {max: 3, policy: on-failure, backoff: 1s}      # see Restart
//	  timeouts: {queue: 2m, pull: 5m, start: 10m, run: 10m, stop: 2s}
//	  keep: 24h                           # how long providers should keep results while you are away
//	  verify: replicate                   # results computed again by others; see VerifyReplicate
//	  probes: move                        # off, warn (the default) or move; see Probes
//	  payment: {maxPrice: 0.05/unit-hour, budget: 0.25}
//	  webhooks: [{url: "https://example.org/hook", events: [succeeded, failed], secretFrom: env:HOOK}]
//
// A file of kind Cluster is read too; see Cluster.
func Parse(data []byte, token Token) (job.Job, error) {
	body, err := parseYAML(data)
	if err != nil {
		return job.Job{}, err
	}
	f := &file{reader: reader{where: map[string]ast.Node{}}, token: token}
	f.job.Payment.Decimals, f.job.Payment.Free = token.Decimals, token.Free
	if f.plain(body, "") {
		f.read(body)
	}
	if len(f.problems) == 0 {
		f.job, err = f.job.Complete(func(field string) bool { return f.where[field] != nil })
		for _, p := range problemsOf(err) {
			f.problems = append(f.problems, f.locate(p))
		}
	}
	if err := f.problems.err(); err != nil {
		return job.Job{}, err
	}
	return f.job, nil
}

// file is a job file being read.
type file struct {
	reader
	job      job.Job
	token    Token
	template bool // the file has parameters, which are read
}

// locate gives a problem the place of its field, or of the nearest field above it.
func (f *file) locate(p job.Problem) job.Problem {
	if f.job.Cluster != nil {
		p.Field = strings.Replace(p.Field, "spec.count", "spec.size", 1)
	}
	gpus := strings.Replace(p.Field, "spec.resources.class", fieldGPUs, 1)
	for _, alias := range []string{p.Field, strings.Replace(p.Field, ".args", ".command", 1), gpus} {
		if n := f.where[alias]; n != nil {
			p.Field = alias
			p.Line, p.Column = position(n)
			return p
		}
	}
	for above := p.Field; above != ""; {
		i := strings.LastIndexAny(above, ".[")
		if i < 0 {
			break
		}
		above = above[:i]
		if n := f.where[above]; n != nil {
			p.Line, p.Column = position(n)
			return p
		}
	}
	return p
}

type fields = map[string]func(n ast.Node, field string)

func (f *file) read(n ast.Node) {
	// The kind is first: with another kind, all fields would be unknown.
	before, spec := len(f.problems), f.spec
	f.mapping(n, "", func(key string, _, value ast.Node, field string) {
		switch key {
		case "apiVersion":
			f.want(value, field, APIVersion)
		case "kind":
			switch v, _ := value.(*ast.StringNode); {
			case v != nil && v.Value == "Service":
				p := problemAt(value, field, "%s", notSupported("kind "+v.Value))
				p.Kind = job.ErrNotSupported
				f.problems = append(f.problems, p)
			case v != nil && v.Value == KindCluster:
				spec, f.job.Cluster = f.cluster, &job.Cluster{}
			case v == nil || v.Value != Kind:
				f.wrong(value, field, "want %s or %s, found %s", Kind, KindCluster, describe(value))
			}
		}
	})
	if len(f.problems) > before {
		return
	}
	f.fields(n, "", fields{
		"apiVersion": func(ast.Node, string) {},
		"kind":       func(ast.Node, string) {},
		"metadata":   f.metadata,
		"spec":       spec,
		"parameters": onlyTemplate(f), "smoke": onlyTemplate(f),
	}, nil)
	for _, field := range []string{"apiVersion", "kind", "spec"} {
		if f.where[field] == nil {
			f.wrong(n, field, "missing")
		}
	}
}

// onlyTemplate refuses a field of a template in a plain job file.
func onlyTemplate(f *file) func(ast.Node, string) {
	return func(n ast.Node, field string) {
		if !f.template {
			f.wrong(n, field, "this is a template's job file: starling run --template DIRECTORY reads it")
		}
	}
}

func (f *file) want(n ast.Node, field, only string) {
	if v, ok := n.(*ast.StringNode); !ok || v.Value != only {
		f.wrong(n, field, "want %s, found %s", only, describe(n))
	}
}

func (f *file) metadata(n ast.Node, path string) {
	f.fields(n, path, fields{
		"name":   f.textTo(&f.job.Name),
		"labels": func(n ast.Node, field string) { f.job.Labels = f.texts(n, field) },
	}, map[string]string{"namespace": "namespaces", "annotations": "annotations"})
}

func (f *file) spec(n ast.Node, path string) {
	j := &f.job
	f.fields(n, path, fields{
		"module": f.textTo(&j.Module),
		"image":  f.image,
		"args":   f.args(&j.Args), "command": f.args(&j.Args),
		"entrypoint":   f.args(&j.Entrypoint),
		"workDir":      f.textTo(&j.WorkDir),
		"network":      func(n ast.Node, field string) { set(f, n, field, &j.Network, asNetwork) },
		"registryAuth": f.registry,
		"env":          func(n ast.Node, field string) { j.Env = f.texts(n, field) },
		"secrets":      f.secrets,
		"health":       f.health,
		"count":        f.numberTo(&j.Count),
		"resources":    f.resources,
		"placement":    f.placement,
		"inputs":       f.inputs(&j.Inputs),
		"outputs":      f.outputs,
		"volumes":      f.volumes,
		"scratch":      func(n ast.Node, field string) { set(f, n, field, &j.ScratchMiB, parseMiB) },
		"shmSize":      func(n ast.Node, field string) { set(f, n, field, &j.ShmMiB, parseMiB) },
		"checkpoint":   checkpointTo(f),
		"copies":       copiesTo(f),
		"rounds":       f.rounds,
		"restart":      f.restart,
		"timeouts":     f.timeouts,
		"keep":         f.spanTo(&j.Keep),
		"idle":         f.spanTo(&j.Idle),
		"guardians":    f.numberTo(&j.Guardians),
		"standbys":     f.numberTo(&j.Standbys),
		"verify":       func(n ast.Node, field string) { set(f, n, field, &j.Verify, asVerify) },
		"probes":       func(n ast.Node, field string) { set(f, n, field, &j.Probes, asProbes) },
		"payment":      f.payment,
		"webhooks":     f.webhooks,
		"engine": func(n ast.Node, field string) {
			f.wrong(n, field, "only a cluster has an engine: write kind: %s", KindCluster)
		},
		"size": func(n ast.Node, field string) {
			f.wrong(n, field, "write count for the ranks of a job, or kind: %s", KindCluster)
		},
	}, map[string]string{
		"replicas":    "replicas of services; write count for the ranks of a job",
		"priority":    "priorities",
		"constraints": "constraints",
	})
	for _, two := range [][2]string{{"module", "image"}, {"args", "command"}} {
		if second := f.where[path+"."+two[1]]; second != nil && f.where[path+"."+two[0]] != nil {
			f.wrong(second, path+"."+two[1], "%s.%s is given, too: write one of them", path, two[0])
		}
	}
}

func (f *file) resources(n ast.Node, path string) {
	r := &f.job.Resources
	f.fields(n, path, fields{
		"class":  func(n ast.Node, field string) { set(f, n, field, &r.Class, asClass) },
		"units":  f.numberTo(&r.Units),
		"cpu":    func(n ast.Node, field string) { set(f, n, field, &r.PerUnit.MilliCPU, parseCPU) },
		"memory": func(n ast.Node, field string) { set(f, n, field, &r.PerUnit.MemoryMiB, parseMiB) },
		"disk":   func(n ast.Node, field string) { set(f, n, field, &r.PerUnit.DiskMiB, parseMiB) },
		"gpus": func(n ast.Node, field string) {
			var asked job.Resources
			set(f, n, field, &asked, parseGPUs)
			ask(r, asked)
		},
		"unproven": func(n ast.Node, field string) { set(f, n, field, &r.Unproven, parseTruth) },
	}, map[string]string{"cuda": `CUDA versions; write gpus: "2,cap>=8.0" for a compute capability`})
	for _, other := range []string{".class", ".units"} {
		if n := f.where[path+other]; n != nil && f.where[path+".gpus"] != nil {
			f.wrong(n, path+other, gpusSay)
		}
	}
}

func (f *file) placement(n ast.Node, path string) {
	p := &f.job.Placement
	known := fields{
		"regions": func(n ast.Node, field string) { items(f, n, field, &p.Regions, asRegion) },
		"exclude": func(n ast.Node, field string) { items(f, n, field, &p.Exclude, asProvider) },
		"only":    func(n ast.Node, field string) { items(f, n, field, &p.Only, asProvider) },
		"spread":  f.spread,
	}
	if c := f.job.Cluster; c != nil {
		known["network"] = func(n ast.Node, field string) { set(f, n, field, &c.Network, asNetClass) }
	}
	f.fields(n, path, known, map[string]string{
		"maxRttMs": "limits on round-trip time", "minBandwidthMbps": "limits on bandwidth",
		"minReputation": "limits on reputation", "minStake": "limits on stake", "verified": "verified providers only",
	})
}

func (f *file) spread(n ast.Node, field string) {
	text, ok := f.text(n, field)
	switch {
	case !ok:
	case text == "peer" || text == "pack":
		f.job.Placement.Pack = text == "pack"
	case text == "site" || text == "region":
		p := problemAt(n, field, "%s", notSupported("spread by "+text+"; it has peer and pack"))
		p.Kind = job.ErrNotSupported
		f.problems = append(f.problems, p)
	default:
		f.wrong(n, field, "%.40q, want peer (every rank on another peer) or pack", text)
	}
}

func (f *file) inputs(to *[]job.Input) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		f.list(n, path, func(n ast.Node, path string) {
			var in job.Input
			var sum string
			f.fields(n, path, fields{
				"src": f.textTo(&in.Source), "sha256": f.textTo(&sum), "dst": f.textTo(&in.Path),
			}, map[string]string{"mode": "input modes"})
			if at := f.where[path+".sha256"]; at != nil && (!job.IsURL(in.Source) || job.IsHub(in.Source)) {
				f.wrong(at, path+".sha256", "only an https:// or s3:// URL has one")
			} else if at != nil {
				in.Source = job.WithSum(in.Source, sum)
			}
			in.Source = filePath(in.Source)
			*to = append(*to, in)
		})
	}
}

func (f *file) outputs(n ast.Node, path string) {
	f.list(n, path, func(n ast.Node, path string) {
		var out job.Output
		f.fields(n, path, fields{"src": f.textTo(&out.Path)},
			map[string]string{"dst": "destinations of outputs; they are kept by your peer"})
		f.job.Outputs = append(f.job.Outputs, out)
	})
}

func (f *file) rounds(n ast.Node, path string) {
	r := &job.Rounds{Count: 1}
	f.job.Rounds = r
	f.fields(n, path, fields{
		"count": f.numberTo(&r.Count),
		"carry": f.textTo(&r.Carry),
		"reduce": func(n ast.Node, path string) {
			r.Reduce = &job.Reduce{}
			f.fields(n, path, fields{
				"module": f.textTo(&r.Reduce.Module),
				"args":   f.args(&r.Reduce.Args),
				"inputs": f.inputs(&r.Reduce.Inputs),
			}, map[string]string{"env": "variables of the reduce program",
				"resources": "resources of the reduce program"})
		},
	}, nil)
}

func (f *file) payment(n ast.Node, path string) {
	p := &f.job.Payment
	f.fields(n, path, fields{
		"maxPrice": func(n ast.Node, field string) {
			set(f, n, field, &p.MaxPrice, func(s string) (market.Price, error) { return parsePrice(s, f.token) })
		},
		"budget": func(n ast.Node, field string) {
			set(f, n, field, &p.Budget, func(s string) (market.Amount, error) { return parseMoney(s, f.token) })
		},
	}, map[string]string{"mint": "other tokens than the network's",
		"interval": "other metering intervals than the network's"})
}

// args reads a list of arguments.
func (f *file) args(to *[]string) func(ast.Node, string) {
	return func(n ast.Node, field string) {
		f.list(n, field, func(n ast.Node, field string) {
			if text, ok := f.text(n, field); ok {
				*to = append(*to, text)
			}
		})
	}
}

// texts reads a mapping of names to text.
func (f *file) texts(n ast.Node, path string) map[string]string {
	m := map[string]string{}
	f.mapping(n, path, func(key string, _, value ast.Node, field string) {
		if text, ok := f.text(value, field); ok {
			m[key] = text
		}
	})
	return m
}

func (f *file) textTo(to *string) func(ast.Node, string) {
	return func(n ast.Node, field string) {
		if text, ok := f.text(n, field); ok {
			*to = text
		}
	}
}

func (f *file) numberTo(to *uint32) func(ast.Node, string) {
	return func(n ast.Node, field string) {
		if v, ok := f.number(n, field); ok {
			*to = v
		}
	}
}
