package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job/names"
	"github.com/starling-network/starling/node/runtime"
)

const (
	maxBlobs = 16_384
)

// Check holds the job to every rule. The error is an *Error with the fields named as in a job file.
func (j Job) Check() error { return problemsOf(j).err() }

func problemsOf(j Job) problems {
	var ps problems
	if !names.IsName(j.Name) {
		ps.add("metadata.name", "%.80q is not a name: want 1 to %d of a-z, 0-9 and '-', beginning and ending with a "+
			"letter or digit", j.Name, names.Max)
	}
	checkLabels(j, &ps)
	checkProgram(j, &ps)
	checkArgs(&ps, "spec.args", j.Args)
	checkEnv(j, &ps)
	checkTotal(j, &ps)
	checkSecrets(j, &ps)
	most := uint32(MaxRank)
	if j.Cluster != nil {
		most = cluster.MaxMembers
	}
	if j.Count < 1 || j.Count > most {
		ps.add("spec.count", "%d, want 1 to %d", j.Count, most)
	}
	checkResources(j, &ps)
	checkPlacement(j, &ps)
	checkFiles(j, &ps)
	checkVolumes(j, &ps)
	checkRounds(j, &ps)
	checkCheckpoint(j, &ps)
	for _, p := range j.Copies.Check(len(j.Outputs), j.Payment.Free) {
		ps.add("spec.copies"+p.Field, "%s", p.Text)
	}
	checkRestart(j, &ps)
	checkHealth(j, &ps)
	checkTimes(j, &ps)
	checkWebhooks(j, &ps)
	checkVerify(j, &ps)
	checkCluster(j, &ps)
	if !slices.Contains([]Probes{ProbesWarn, ProbesMove, ProbesOff}, j.Probes) {
		ps.add("spec.probes", "%.40q, want off, warn or move", string(j.Probes))
	}
	checkPayment(j, &ps)
	if len(ps) == 0 { // the sources of a broken job are too many, or none
		checkBlobs(j, &ps)
	}
	return ps
}

func checkLabels(j Job, ps *problems) {
	if len(j.Labels) > MaxLabels {
		ps.add("metadata.labels", "%d labels, at most %d", len(j.Labels), MaxLabels)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(j.Labels)) {
		if !names.IsLabel(k) {
			ps.add("metadata.labels."+Printable(k),
				"not a label's name: want 1 to 63 of letters, digits, '.', '_', '/' and '-'")
		}
		if v := j.Labels[k]; len(v) > 256 || !names.IsText(v) || strings.ContainsAny(v, "\r\n") {
			ps.add("metadata.labels."+Printable(k), "want one line of at most 256 bytes")
		}
	}
}

func checkEnv(j Job, ps *problems) {
	if len(j.Env) > MaxEnv {
		ps.add("spec.env", "%d variables, at most %d", len(j.Env), MaxEnv)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(j.Env)) {
		field := "spec.env." + Printable(k)
		switch {
		case !names.IsVariable(k):
			ps.add(field, "not a variable's name: want letters, digits and '_', not beginning with a digit")
		case strings.HasPrefix(k, "STARLING_"):
			ps.add(field, "names with STARLING_ are set by the network")
		}
		if v := j.Env[k]; len(v) > MaxText || !names.IsText(v) {
			ps.add(field, "want text of at most %d bytes without NUL", MaxText)
		}
	}
}

// ownBytes are left for the variables of the peer and of a cluster's engine.
const ownBytes = 16 << 10

// checkTotal holds arguments and variables together to the bounds of providers.
func checkTotal(j Job, ps *problems) {
	args := len(j.Args) + len(j.Entrypoint)
	total := len(strings.Join(j.Entrypoint, " ")) + len(strings.Join(j.Args, " ")) + 2
	for k, v := range j.Env {
		total += len(k) + len(v) + 2
	}
	if args > MaxArgs && len(j.Args) <= MaxArgs {
		ps.add("spec.args", "%d arguments with the entrypoint's, at most %d", args, MaxArgs)
	} else if most := runtime.MaxArgBytes - ownBytes; total > most {
		ps.add("spec.args", "%d bytes with the variables, at most %d: write inputs", total, most)
	}
}

func checkResources(j Job, ps *problems) {
	if err := j.Resources.Class.Check(); err != nil {
		ps.add("spec.resources.class", "%.40q is not a class: want 1 to 32 of a-z, 0-9, '-' and '/'",
			string(j.Resources.Class))
	} else if isGPU(j.Resources.Class) && j.Runtime != RuntimeDocker {
		ps.add("spec.resources.class", "only a container can use a GPU: give an image instead of a module")
	}
	if (j.Resources.Class == market.Disk) != (j.Runtime == RuntimeVolume) {
		ps.add("spec.resources.class", "units of class %s are for volumes, and have no processor", market.Disk)
	}
	if n := j.Resources.Units; n < 1 || n > market.MaxUnitsPerLease {
		ps.add("spec.resources.units", "%d, want 1 to %d", n, market.MaxUnitsPerLease)
	}
	if c := j.Resources.MinCapability; c > market.MaxCapability {
		ps.add("spec.resources.gpus", "no GPU has compute capability %v", c)
	} else if (c > 0 || j.Resources.PerUnit.VRAMMiB > 0) && !isGPU(j.Resources.Class) {
		ps.add("spec.resources.class", "units of class %q have no GPU: use gpus", string(j.Resources.Class))
	}
}

func (ps *problems) later(field, what string) {
	*ps = append(*ps, Problem{Field: field, Text: notSupported(what), Kind: ErrNotSupported})
}

func checkPlacement(j Job, ps *problems) {
	p := j.Placement
	if len(p.Regions) > market.MaxRegions {
		ps.add("spec.placement.regions", "%d regions, at most %d", len(p.Regions), market.MaxRegions)
	}
	for i, r := range p.Regions {
		field := fmt.Sprintf("spec.placement.regions[%d]", i)
		if r.Check() != nil {
			ps.add(field, "%.40q is not a region: want 1 to 32 of a-z, 0-9 and '-'", string(r))
		} else if slices.Contains(p.Regions[:i], r) {
			ps.add(field, "%q is listed twice", r)
		}
	}
	if len(p.Exclude) > market.MaxExclude {
		ps.add("spec.placement.exclude", "%d providers, at most %d", len(p.Exclude), market.MaxExclude)
	}
	if len(p.Only) > market.MaxExclude {
		ps.add("spec.placement.only", "%d providers, at most %d", len(p.Only), market.MaxExclude)
	}
	for field, keys := range map[string][]sign.Key{"exclude": p.Exclude, "only": p.Only} {
		for i, k := range keys {
			if slices.Contains(keys[:i], k) {
				ps.add(fmt.Sprintf("spec.placement.%s[%d]", field, i), "%s is listed twice", k)
			}
		}
	}
}

// checkVerify refuses to check results that the job does not determine or that cannot be compared.
func checkVerify(j Job, ps *problems) {
	const field = "spec.verify"
	if j.Verify == VerifyNone || j.Cluster != nil { // a cluster cannot be verified
		return
	}
	if j.Verify != VerifyReplicate {
		ps.add(field, "%.40q, want none or replicate", string(j.Verify))
		return
	}
	per := j.Resources.PerUnit
	for _, no := range []struct {
		broken bool
		why    string
	}{
		{j.Runtime != RuntimeWasm, "a container is not deterministic: two honest runs differ; give a WASI " +
			"module"},
		{len(j.Outputs) == 0, "outputs are compared: name a directory with " +
			"spec.outputs"},
		{j.Rounds != nil, "rounds run on the same leases, and each provider signs one result: submit a job for " +
			"each round"},
		{j.ScratchMiB > 0, "a result may depend on the scratch space: write temporary files below an output"},
		{j.Checkpoint != nil, "a result may depend on the times of checkpoints: leave spec.checkpoint out"},
		{len(j.Secrets) > 0 || j.Registry != nil, "secrets are for one provider, and a replica runs on another"},
		{j.Guardians > 0, "guardians do not buy replicas; leave one of the two out (--guardians 0)"},
		{j.Restart.Policy != RestartNever, "a restarted program continues from its files: write restart.policy " +
			"never"},
		{per.MemoryMiB == 0 || per.DiskMiB == 0, "a result may depend on the amounts of memory and disk: write " +
			"spec.resources.memory and disk"},
		{uint64(per.MemoryMiB)*uint64(j.Resources.Units) > 1<<31 ||
			uint64(per.DiskMiB)*uint64(j.Resources.Units) > 1<<31,
			"that is more memory or disk than one program can be given"},
	} {
		if no.broken {
			ps.add(field, "%s", no.why)
		}
	}
}

func checkRounds(j Job, ps *problems) {
	r := j.Rounds
	if r == nil {
		return
	}
	if r.Count < 1 || r.Count > MaxRounds {
		ps.add("spec.rounds.count", "%d, want 1 to %d", r.Count, MaxRounds)
	}
	if r.Carry != "" {
		if err := checkPath(r.Carry); err != nil {
			ps.add("spec.rounds.carry", "%v", err)
		}
		taken := func(p string) bool { return overlap(p, r.Carry) }
		if slices.ContainsFunc(j.Inputs, func(in Input) bool { return taken(in.Path) }) ||
			slices.ContainsFunc(j.Outputs, func(out Output) bool { return taken(out.Path) }) {
			ps.add("spec.rounds.carry", "%s overlaps an input or output", r.Carry)
		}
	}
	if r.Reduce == nil {
		if r.Carry != "" {
			ps.add("spec.rounds.carry", "no writer: spec.rounds.reduce is missing")
		}
		return
	}
	switch {
	case r.Carry == "":
		ps.add("spec.rounds.reduce", "its output has no reader: spec.rounds.carry is missing")
	case len(j.Outputs) == 0:
		ps.add("spec.rounds.reduce", "no input: spec.outputs is empty")
	}
	checkModule(ps, "spec.rounds.reduce.module", r.Reduce.Module)
	checkArgs(ps, "spec.rounds.reduce.args", r.Reduce.Args)
	checkInputs(ps, "spec.rounds.reduce.inputs", r.Reduce.Inputs, false)
}

func checkArgs(ps *problems, field string, args []string) {
	if len(args) > MaxArgs {
		ps.add(field, "%d arguments, at most %d", len(args), MaxArgs)
		return
	}
	for i, a := range args {
		if len(a) > MaxText || !names.IsText(a) {
			ps.add(fmt.Sprintf("%s[%d]", field, i), "want text of at most %d bytes without NUL", MaxText)
		}
	}
}
