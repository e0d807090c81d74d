package job

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job/names"
	"github.com/starling-network/starling/node/runtime"
)

// Input is a file or directory that the program finds at Path.
type Input struct {
	// a path, cid:…, https://…[#sha256=…], s3://…[#sha256=…], hf://… or ipfs://…; {rank} is replaced by the rank's
	// number
	Source string `json:"source"`
	Path   string `json:"path"`
}

// Output is a directory of the program that is kept when it ends.
type Output struct {
	Path string `json:"path"`
}

// Blob is a content-addressed file or directory.
type Blob struct {
	CID   string   `json:"cid"`
	Size  int64    `json:"size,omitempty"`  // bytes, 0 if not known
	Tree  bool     `json:"tree,omitempty"`  // a tar of a directory
	URLs  []string `json:"urls,omitempty"`  // where providers read it; tried in this order
	Local bool     `json:"local,omitempty"` // it has URLs, and the peer has it too; the peer sets this
}

// CIDScheme begins a source that names content instead of a file.
const CIDScheme = "cid:"

// PartScheme begins the sources of a pushed image's parts; the SHA-256 follows. Such sources are in Blobs alone, where
// the peer that takes the job adds them.
const PartScheme = "image:"

// RankMark is replaced by the rank's number in an input's source.
const RankMark = "{rank}"

// For is the source of the input for one rank.
func (in Input) For(rank int) string {
	return strings.ReplaceAll(in.Source, RankMark, strconv.Itoa(rank))
}

// Sources lists every source that the job reads, each once and sorted, with {rank} filled in for every rank.
func (j Job) Sources() []string {
	seen := map[string]bool{}
	if j.Module != "" {
		seen[j.Module] = true
	}
	add := func(inputs []Input, ranks int) {
		for _, in := range inputs {
			for rank := range ranks {
				seen[in.For(rank)] = true
			}
		}
	}
	add(j.Inputs, int(j.Count))
	if j.Rounds != nil && j.Rounds.Reduce != nil {
		seen[j.Rounds.Reduce.Module] = true
		add(j.Rounds.Reduce.Inputs, 1)
	}
	for _, part := range j.ImageParts() {
		seen[part] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// ImageParts lists the sources of the parts of the job's pushed image, sorted.
func (j Job) ImageParts() (parts []string) {
	if _, pushed := runtime.PushedDigest(j.Image); !pushed {
		return nil
	}
	for source := range j.Blobs {
		if strings.HasPrefix(source, PartScheme) {
			parts = append(parts, source)
		}
	}
	slices.Sort(parts)
	return parts
}

// WithImageParts returns the job with the parts of its pushed image, the sizes by SHA-256, instead of those that it
// had. It returns ErrInvalid if there are too many.
func (j Job) WithImageParts(sizes map[string]int64) (Job, error) {
	if len(sizes) > runtime.MaxImageParts {
		return j, fmt.Errorf("%w: image: got %d parts, want at most %d", ErrInvalid, len(sizes), runtime.MaxImageParts)
	}
	blobs := maps.Clone(j.Blobs)
	if blobs == nil {
		blobs = map[string]Blob{}
	}
	maps.DeleteFunc(blobs, func(source string, _ Blob) bool { return strings.HasPrefix(source, PartScheme) })
	for digest, size := range sizes {
		c, err := names.SumCID(digest)
		if err != nil {
			return j, fmt.Errorf("%w: image: %w", ErrInvalid, err)
		}
		blobs[PartScheme+digest] = Blob{CID: c, Size: size}
	}
	j.Blobs = blobs
	return j, nil
}

// isPart reports whether the content of a part's source is that of its digest.
func (b Blob) isPart(source string) bool {
	c, err := names.SumCID(strings.TrimPrefix(source, PartScheme))
	return err == nil && c == b.CID && b.Size > 0 && !b.Tree && len(b.URLs) == 0
}

// In returns the job with its relative file paths taken from dir, as those of a job file are taken from where it lies.
func (j Job) In(dir string) Job {
	rebase := func(source string) string {
		if strings.HasPrefix(source, CIDScheme) || IsURL(source) || filepath.IsAbs(source) {
			return source
		}
		return filepath.Join(dir, source)
	}
	inputs := func(in []Input) []Input {
		out := slices.Clone(in)
		for i := range out {
			out[i].Source = rebase(out[i].Source)
		}
		return out
	}
	if j.Module != "" {
		j.Module = rebase(j.Module)
	}
	j = secretsIn(j, dir)
	j.Inputs = inputs(j.Inputs)
	if j.Rounds != nil && j.Rounds.Reduce != nil {
		rounds, reduce := *j.Rounds, *j.Rounds.Reduce
		reduce.Module = rebase(reduce.Module)
		reduce.Inputs = inputs(reduce.Inputs)
		rounds.Reduce = &reduce
		j.Rounds = &rounds
	}
	return j
}

// WithBlobs returns the job with the contents of its sources. It returns ErrInvalid if one of Sources is missing, or if
// blobs has a source that is not in Sources.
func (j Job) WithBlobs(blobs map[string]Blob) (Job, error) {
	j.Blobs = maps.Clone(blobs)
	return j, j.Check()
}

// Uploaded reports whether the contents of all sources are known, so that peers can fetch them.
func (j Job) Uploaded() bool { return len(j.Blobs) > 0 || len(j.Sources()) == 0 }

// reducesHere is the problem of a URL of the reduce program.
const reducesHere = "the reduce program runs on your peer, which reads no URLs: give a file path, or cid: and a CID"

// hidesSystem is the problem of a place in a container.
const hidesSystem = "%s is a directory of the image's own: write one such as /data"

func checkFiles(j Job, ps *problems) {
	checkInputs(ps, "spec.inputs", j.Inputs, true)
	for i, in := range j.Inputs {
		if j.Image != "" && runtime.HidesSystem(in.Path) {
			ps.add(fmt.Sprintf("spec.inputs[%d].dst", i), hidesSystem, in.Path)
		}
	}
	if n := mounts(j); n > runtime.MaxMounts {
		ps.add("spec.inputs", "inputs and outputs in %d directories, at most %d", n, runtime.MaxMounts)
	}
	if len(j.Outputs) > MaxOutputs {
		ps.add("spec.outputs", "%d outputs, at most %d", len(j.Outputs), MaxOutputs)
		return
	}
	for i, out := range j.Outputs {
		field := fmt.Sprintf("spec.outputs[%d].src", i)
		if err := checkPath(out.Path); err != nil {
			ps.add(field, "%v", err)
		} else if j.Image != "" && runtime.HidesSystem(out.Path) {
			ps.add(field, hidesSystem, out.Path)
		} else if slices.ContainsFunc(j.Outputs[:i], func(o Output) bool { return overlap(o.Path, out.Path) }) {
			ps.add(field, "%s and another output lie in one another", out.Path)
		}
	}
	checkScratch(j, ps)
}

// checkScratch refuses a scratch directory that something else lies in: it would be kept, or not be empty.
func checkScratch(j Job, ps *problems) {
	if j.ScratchMiB == 0 {
		return
	}
	const field = "spec.scratch"
	taken := func(p string) bool { return overlap(p, ScratchPath) }
	switch {
	case slices.ContainsFunc(j.Inputs, func(in Input) bool { return taken(in.Path) }),
		slices.ContainsFunc(j.Outputs, func(out Output) bool { return taken(out.Path) }),
		j.Rounds != nil && j.Rounds.Carry != "" && taken(j.Rounds.Carry):
		ps.add(field, "%s is the scratch directory: give inputs and outputs another place", ScratchPath)
	case uint64(j.Resources.PerUnit.DiskMiB)+uint64(j.ScratchMiB) > math.MaxUint32:
		ps.add(field, "%d MiB and the disk are more than one program can be given", j.ScratchMiB)
	}
}

// mounts is the number of directories that a provider mounts for rank 0, or fewer before the upload.
func mounts(j Job) int {
	at := written(j)
	for _, in := range j.Inputs {
		if !j.Blobs[in.For(0)].Tree && path.Dir(in.Path) != "/" {
			in.Path = path.Dir(in.Path)
		}
		at = append(at, in.Path)
	}
	return len(outermost(j, at))
}

// checkBlobs holds the contents to the sources, once they are there.
func checkBlobs(j Job, ps *problems) {
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
		if strings.HasPrefix(source, PartScheme) && !b.isPart(source) {
			ps.add("blobs", "%.200q: want a file of this SHA-256, with its size and without URLs", source)
			continue
		}
		if b.Size < 0 || names.CheckCID(b.CID) != nil {
			ps.add("blobs", "the digest of %.200q is not a CIDv1 with SHA-256, or its size is negative", source)
		} else if text := b.badURLs(source); text != "" {
			ps.add("blobs", "%.200q: %s", source, text)
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
			if dir := path.Dir(in.Path); j.Blobs[in.For(rank)].Tree {
				continue
			} else if dir == "/" {
				ps.add(fmt.Sprintf("spec.inputs[%d].dst", i), "a file must lie in a directory, such as /data%s",
					in.Path)
			} else if j.Image != "" && runtime.HidesSystem(dir) {
				ps.add(fmt.Sprintf("spec.inputs[%d].dst", i), hidesSystem, dir)
			} else {
				continue
			}
			break
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
		} else if !ranks && IsURL(in.Source) {
			ps.add(field+".src", reducesHere)
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
	case IsURL(module) && field != "spec.module":
		ps.add(field, reducesHere)
	case strings.Contains(module, RankMark):
		ps.add(field, "%s means nothing here: all ranks run one program", RankMark)
	default:
		if text := badSource(module); text != "" {
			ps.add(field, "%s", text)
		} else if IsFolder(module) {
			ps.add(field, "%.120q is a folder, a module is one file", module)
		} else if what := laterSource(module); what != "" {
			ps.later(field, what)
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
	case path.Base(p) == EngineSocket:
		return errors.New(Never["docker.sock"])
	}
	return nil
}

// overlap reports whether one of two clean paths is the other or lies in it.
func overlap(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

// badSource returns the problem of a source; "" if there is none.
func badSource(source string) string {
	switch {
	case source == "":
		return "missing: a file path, an https://, s3://, hf:// or ipfs:// URL, or cid: and a CID"
	case len(source) > 4096 || !names.IsText(source) || strings.ContainsAny(source, "\r\n"):
		return "want one line of at most 4096 bytes"
	case path.Base(source) == EngineSocket:
		return Never["docker.sock"]
	case strings.HasPrefix(source, PartScheme):
		return PartScheme + " begins the names of an image's parts: give the file as ./" + source
	case IsURL(source):
		return badURL(source)
	case strings.HasPrefix(source, CIDScheme):
		if err := names.CheckCID(strings.TrimPrefix(source, CIDScheme)); err != nil {
			return err.Error()
		}
	}
	return ""
}

// laterSource names the kind of a source that only a later version will fetch.
func laterSource(source string) string {
	if scheme, _, found := strings.Cut(source, "://"); found && !IsURL(source) {
		return fmt.Sprintf("sources of %.20s://; give a file path, an https://, s3://, hf:// or ipfs:// URL, or cid: "+
			"and a CID", scheme)
	}
	return ""
}
