package job

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/runtime"
)

const (
	maxName  = 63
	maxBlobs = 16_384
)

// Check holds the job to every rule, as Parse does. The error is an *Error with the fields named as in a job file.
func (j Job) Check() error { return j.problems().err() }

func (j Job) problems() problems {
	var ps problems
	if !isName(j.Name) {
		ps.add("metadata.name", "%.80q is not a name: want 1 to %d of a-z, 0-9 and '-', beginning and ending with a letter or digit", j.Name, maxName)
	}
	j.checkLabels(&ps)
	j.checkProgram(&ps)
	checkArgs(&ps, "spec.args", j.Args)
	j.checkEnv(&ps)
	j.checkSecrets(&ps)
	most := uint32(MaxRank)
	if j.Cluster != nil {
		most = cluster.MaxMembers
	}
	if j.Count < 1 || j.Count > most {
		ps.add("spec.count", "%d, want 1 to %d", j.Count, most)
	}
	j.checkResources(&ps)
	j.checkPlacement(&ps)
	j.checkFiles(&ps)
	j.checkRounds(&ps)
	j.checkRestart(&ps)
	j.checkHealth(&ps)
	j.checkTimes(&ps)
	j.checkWebhooks(&ps)
	j.checkVerify(&ps)
	j.checkCluster(&ps)
	if !slices.Contains([]Probes{ProbesWarn, ProbesMove, ProbesOff}, j.Probes) {
		ps.add("spec.probes", "%.40q, want off, warn or move", string(j.Probes))
	}
	j.checkPayment(&ps)
	if len(ps) == 0 { // the sources of a broken job are too many, or none
		j.checkBlobs(&ps)
	}
	return ps
}

func (j Job) checkLabels(ps *problems) {
	if len(j.Labels) > MaxLabels {
		ps.add("metadata.labels", "%d labels, at most %d", len(j.Labels), MaxLabels)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(j.Labels)) {
		if !isLabel(k) {
			ps.add("metadata.labels."+k, "not a label's name: want 1 to 63 of letters, digits, '.', '_', '/' and '-'")
		}
		if v := j.Labels[k]; len(v) > 256 || !isText(v) || strings.ContainsAny(v, "\r\n") {
			ps.add("metadata.labels."+k, "want one line of at most 256 bytes")
		}
	}
}

func (j Job) checkEnv(ps *problems) {
	if len(j.Env) > MaxEnv {
		ps.add("spec.env", "%d variables, at most %d", len(j.Env), MaxEnv)
		return
	}
	for _, k := range slices.Sorted(maps.Keys(j.Env)) {
		switch {
		case !isVariable(k):
			ps.add("spec.env."+k, "not a variable's name: want letters, digits and '_', not beginning with a digit")
		case strings.HasPrefix(k, "STARLING_"):
			ps.add("spec.env."+k, "names with STARLING_ are set by the network")
		}
		if v := j.Env[k]; len(v) > MaxText || !isText(v) {
			ps.add("spec.env."+k, "want text of at most %d bytes without NUL", MaxText)
		}
	}
}

func (j Job) checkResources(ps *problems) {
	if err := j.Resources.Class.Check(); err != nil {
		ps.add("spec.resources.class", "%.40q is not a class: want 1 to 32 of a-z, 0-9, '-' and '/'", string(j.Resources.Class))
	} else if isGPU(j.Resources.Class) && j.Runtime != RuntimeDocker {
		ps.add("spec.resources.class", "only a container can use a GPU: give an image instead of a module")
	}
	if n := j.Resources.Units; n < 1 || n > market.MaxUnitsPerLease {
		ps.add("spec.resources.units", "%d, want 1 to %d", n, market.MaxUnitsPerLease)
	}
	if c := j.Resources.MinCapability; c > market.MaxCapability {
		ps.add("spec.resources.gpus", "no GPU has compute capability %v", c)
	} else if (c > 0 || j.Resources.PerUnit.VRAMMiB > 0) && !isGPU(j.Resources.Class) {
		ps.add("spec.resources.class", "units of class %q have no GPU: ask for gpus", string(j.Resources.Class))
	}
}

func (ps *problems) later(field, what string) {
	*ps = append(*ps, Problem{Field: field, Text: notSupported(what), Kind: ErrNotSupported})
}

func (j Job) checkPlacement(ps *problems) {
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
	for i, k := range p.Exclude {
		if slices.Contains(p.Exclude[:i], k) {
			ps.add(fmt.Sprintf("spec.placement.exclude[%d]", i), "%s is listed twice", k)
		}
	}
}

// checkVerify refuses to check what is not determined by the job, or cannot be compared.
func (j Job) checkVerify(ps *problems) {
	const field = "spec.verify"
	if j.Verify == VerifyNone || j.Cluster != nil { // a cluster has none at all
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
		{j.Runtime != RuntimeWasm, "a container is not deterministic: two honest runs of it differ; give a WASI module"},
		{len(j.Outputs) == 0, "what is compared are the files that the program leaves: name a directory with spec.outputs"},
		{j.Rounds != nil, "rounds run on the same leases, and each provider signs one result: submit a job for each round"},
		{len(j.Secrets) > 0 || j.Registry != nil, "secrets are for one provider, and a replica is run by another"},
		{j.Guardians > 0, "guardians do not buy replicas; leave one of the two out (--guardians 0)"},
		{j.Restart.Policy != RestartNever, "a program that is started again goes on with what it left: write restart.policy never"},
		{per.MemoryMiB == 0 || per.DiskMiB == 0, "a result may depend on how much memory and disk there is: say spec.resources.memory and disk"},
		{uint64(per.MemoryMiB)*uint64(j.Resources.Units) > 1<<31 || uint64(per.DiskMiB)*uint64(j.Resources.Units) > 1<<31, "that is more memory or disk than one program can be given"},
	} {
		if no.broken {
			ps.add(field, "%s", no.why)
		}
	}
}

func (j Job) checkFiles(ps *problems) {
	checkInputs(ps, "spec.inputs", j.Inputs, true)
	if len(j.Outputs) > MaxOutputs {
		ps.add("spec.outputs", "%d outputs, at most %d", len(j.Outputs), MaxOutputs)
		return
	}
	for i, out := range j.Outputs {
		field := fmt.Sprintf("spec.outputs[%d].src", i)
		if err := checkPath(out.Path); err != nil {
			ps.add(field, "%v", err)
		} else if slices.ContainsFunc(j.Outputs[:i], func(o Output) bool { return overlap(o.Path, out.Path) }) {
			ps.add(field, "%s and another output lie in one another", out.Path)
		}
	}
}

func (j Job) checkRounds(ps *problems) {
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
			ps.add("spec.rounds.carry", "%s lies in an input or output, or one of them in it", r.Carry)
		}
	}
	if r.Reduce == nil {
		if r.Carry != "" {
			ps.add("spec.rounds.carry", "nothing would write it: spec.rounds.reduce is missing")
		}
		return
	}
	switch {
	case r.Carry == "":
		ps.add("spec.rounds.reduce", "nobody would read what it writes: spec.rounds.carry is missing")
	case len(j.Outputs) == 0:
		ps.add("spec.rounds.reduce", "it would have nothing to read: spec.outputs is empty")
	}
	checkModule(ps, "spec.rounds.reduce.module", r.Reduce.Module)
	checkArgs(ps, "spec.rounds.reduce.args", r.Reduce.Args)
	checkInputs(ps, "spec.rounds.reduce.inputs", r.Reduce.Inputs, false)
}

func (j Job) checkPayment(ps *problems) {
	p := j.Payment
	if p.Decimals > market.MaxDecimals {
		ps.add("payment.decimals", "%d, at most %d", p.Decimals, market.MaxDecimals)
		return
	}
	switch {
	case p.Free && p.MaxPrice > 0:
		ps.add("spec.payment.maxPrice", "this network is free, its only price is 0: leave it out")
	case p.Free && p.Budget > 0:
		ps.add("spec.payment.budget", "this network is free, nothing is paid on it: leave it out")
	case p.Free:
	case p.MaxPrice == 0:
		ps.add("spec.payment.maxPrice", "missing: it is the most you would pay for a unit in an hour")
	case p.Budget == 0:
		cost, err := j.MaxCost()
		switch {
		case err != nil:
			ps.add("spec.payment.maxPrice", "too high: what the job could cost does not fit into 64 bits")
		case cost > 0: // otherwise ranks, units or time are wrong, and that is said already
			ps.add("spec.payment.budget", "must be more than nothing")
		}
	}
}

// checkBlobs holds the contents to the sources, once they are there.
func (j Job) checkBlobs(ps *problems) {
	if len(j.Blobs) == 0 {
		return
	}
	if len(j.Blobs) > maxBlobs {
		ps.add("blobs", "%d sources, at most %d", len(j.Blobs), maxBlobs)
		return
	}
	sources := j.Sources()
	for _, source := range sources {
		b, ok := j.Blobs[source]
		if !ok {
			ps.add("blobs", "the contents of %.200q are missing", source)
			continue
		}
		if b.Size < 0 || checkCID(b.CID) != nil {
			ps.add("blobs", "the digest of %.200q is not a CIDv1 with SHA-256, or its size is negative", source)
		}
	}
	if len(j.Blobs) > len(sources) {
		ps.add("blobs", "%d entries for %d sources", len(j.Blobs), len(sources))
	}
	var modules []string
	if j.Module != "" {
		modules = append(modules, j.Module)
	}
	if j.Rounds != nil && j.Rounds.Reduce != nil {
		modules = append(modules, j.Rounds.Reduce.Module)
	}
	for _, m := range modules {
		if j.Blobs[m].Tree {
			ps.add("blobs", "%.200q is a directory, a module is one file", m)
		}
	}
	for i, in := range j.Inputs {
		for rank := range int(j.Count) {
			if !j.Blobs[in.For(rank)].Tree && path.Dir(in.Path) == "/" {
				ps.add(fmt.Sprintf("spec.inputs[%d].dst", i), "a file must lie in a directory, such as /data%s", in.Path)
				break
			}
		}
	}
}

func checkInputs(ps *problems, list string, inputs []Input, ranks bool) {
	if len(inputs) > MaxInputs {
		ps.add(list, "%d inputs, at most %d", len(inputs), MaxInputs)
		return
	}
	for i, in := range inputs {
		field := fmt.Sprintf("%s[%d]", list, i)
		if text := badSource(in.Source); text != "" {
			ps.add(field+".src", "%s", text)
		} else if what := laterSource(in.Source); what != "" {
			ps.later(field+".src", what)
		} else if !ranks && strings.Contains(in.Source, RankMark) {
			ps.add(field+".src", "%s means nothing here: the reduce program runs once", RankMark)
		}
		if err := checkPath(in.Path); err != nil {
			ps.add(field+".dst", "%v", err)
		} else if slices.ContainsFunc(inputs[:i], func(o Input) bool { return o.Path == in.Path }) {
			ps.add(field+".dst", "%s is the place of another input", in.Path)
		}
	}
}

func checkModule(ps *problems, field, module string) {
	switch {
	case module == "":
		ps.add(field, "missing: the path or CID of a WASI program")
	case IsImage(module):
		ps.add(field, "%.120q is a container image: write it as image, not as module", module)
	case strings.Contains(module, RankMark):
		ps.add(field, "%s means nothing here: all ranks run one program", RankMark)
	default:
		if text := badSource(module); text != "" {
			ps.add(field, "%s", text)
		} else if what := laterSource(module); what != "" {
			ps.later(field, what)
		}
	}
}

func checkArgs(ps *problems, field string, args []string) {
	if len(args) > MaxArgs {
		ps.add(field, "%d arguments, at most %d", len(args), MaxArgs)
		return
	}
	for i, a := range args {
		if len(a) > MaxText || !isText(a) {
			ps.add(fmt.Sprintf("%s[%d]", field, i), "want text of at most %d bytes without NUL", MaxText)
		}
	}
}

// checkPath holds a place in the program's file system to the rules of the provider.
func checkPath(p string) error {
	switch {
	case p == "":
		return fmt.Errorf("missing: an absolute path, such as /data")
	case !path.IsAbs(p) || path.Clean(p) != p || p == "/" || len(p) > MaxPath || market.Clean(p, MaxPath) != p:
		return fmt.Errorf("%.80q is not a clean absolute path below /", p)
	case overlap(p, path.Dir(runtime.ControlDir)):
		return fmt.Errorf("%s is kept for the runtime", path.Dir(runtime.ControlDir))
	case path.Base(p) == engineSocket:
		return errors.New(never["docker.sock"])
	}
	return nil
}

// overlap reports whether one of two clean paths is the other or lies in it.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// badSource returns what is wrong with a source, "" if nothing.
func badSource(source string) string {
	switch {
	case source == "":
		return "missing: a file path, or cid: and a CID"
	case len(source) > 4096 || !isText(source) || strings.ContainsAny(source, "\r\n"):
		return "want one line of at most 4096 bytes"
	case path.Base(source) == engineSocket:
		return never["docker.sock"]
	case strings.HasPrefix(source, CIDScheme):
		if err := checkCID(strings.TrimPrefix(source, CIDScheme)); err != nil {
			return err.Error()
		}
	}
	return ""
}

// laterSource names the kind of a source that only a later version will fetch.
func laterSource(source string) string {
	if scheme, _, found := strings.Cut(source, "://"); found {
		return fmt.Sprintf("sources of %.20s://; give a file path, or cid: and a CID", scheme)
	}
	return ""
}

func checkCID(text string) error {
	c, err := cid.Decode(text)
	if err != nil {
		return fmt.Errorf("%.80q is not a CID", text)
	}
	if p := c.Prefix(); p.Version != 1 || p.Codec != cid.Raw || p.MhType != 0x12 || p.MhLength != 32 || c.String() != text {
		return fmt.Errorf("%.80q is not a raw CIDv1 with SHA-256 in base32", text)
	}
	return nil
}

func isName(s string) bool {
	if len(s) < 1 || len(s) > maxName || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return only(s, func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' })
}

func isLabel(s string) bool {
	return len(s) >= 1 && len(s) <= 63 && only(s, func(c byte) bool {
		return isLetter(c) || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '/' || c == '-'
	})
}

func isVariable(s string) bool {
	return len(s) >= 1 && len(s) <= 256 && !(s[0] >= '0' && s[0] <= '9') && only(s, func(c byte) bool {
		return isLetter(c) || c >= '0' && c <= '9' || c == '_'
	})
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func only(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
