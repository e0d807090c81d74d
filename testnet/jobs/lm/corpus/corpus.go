// Package corpus makes the demo's training texts for its language model, from the source of the machine's Go
// installation. It also computes the reference for a model: the results of plain counting of bytes, pairs and triples
// of bytes on the same held-out files after the same training files.
package corpus

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Config is the amount of text to take. Zeros take the defaults of the demo.
type Config struct {
	Workers      int // shards; 5
	ShardBytes   int // length of each; DefaultShardBytes
	HeldOutBytes int // at least this much is held out; 384 KiB
}

// DefaultShardBytes is the length of one worker's text: with DefaultRounds, 1 MiB for each round.
const DefaultShardBytes = DefaultRounds << 20

// DefaultRounds is the number of rounds the demo trains for.
const DefaultRounds = 6

func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, 5)
	c.ShardBytes = cmp.Or(c.ShardBytes, DefaultShardBytes)
	c.HeldOutBytes = cmp.Or(c.HeldOutBytes, 384<<10)
	return c
}

// Corpus is the text of one training. The same installation and Config give the same bytes.
type Corpus struct {
	Shards  [][]byte // one for each worker, of equal length
	HeldOut []byte   // whole files that are in no shard
	Files   int      // how many files it is made of
}

// ErrTooLittle means that the installation has less source text than requested.
var ErrTooLittle = errors.New("not enough Go source")

const (
	maxFile = 128 << 10
	minFile = 256
	// maxHeldOut is the used length of one held-out file, so that no few files dominate.
	maxHeldOut = 8 << 10
)

// Build reads the Go files below dir, which is $GOROOT/src, in the order of a hash of their names. It holds out the
// first files and distributes the rest to the shards. Copies of one text count once. Vendored, generated and very long
// files are left out: they would be in training and held-out text alike, or dominate the rest. Every file ends with a
// NUL.
func Build(dir string, c Config) (Corpus, error) {
	c = c.withDefaults()
	if c.Workers < 1 || c.ShardBytes < 1 || c.HeldOutBytes < 1 {
		return Corpus{}, fmt.Errorf("building corpus: sizes must be positive: %+v", c)
	}
	texts, err := read(dir)
	if err != nil {
		return Corpus{}, fmt.Errorf("building corpus: %w", err)
	}
	out := Corpus{Shards: make([][]byte, c.Workers)}
	for len(out.HeldOut) < c.HeldOutBytes && out.Files < len(texts) {
		t := texts[out.Files]
		out.HeldOut = append(append(out.HeldOut, t[:min(len(t), maxHeldOut)]...), 0)
		out.Files++
	}
	for k := range out.Shards {
		for len(out.Shards[k]) < c.ShardBytes {
			if out.Files == len(texts) {
				return Corpus{}, fmt.Errorf("building corpus: %w in %s: %d shards of %d bytes wanted",
					ErrTooLittle, dir, c.Workers, c.ShardBytes)
			}
			out.Shards[k] = append(append(out.Shards[k], texts[out.Files]...), 0)
			out.Files++
		}
		out.Shards[k] = out.Shards[k][:c.ShardBytes:c.ShardBytes]
	}
	return out, nil
}

func read(dir string) ([][]byte, error) {
	type file struct{ name, text [32]byte }
	var files []file
	texts := map[[32]byte][]byte{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "vendor" || name == "testdata" ||
				name != "." && strings.ContainsAny(name[:1], "._") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(p) != ".go" || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() < minFile || info.Size() > maxFile {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(p)))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		if texts[sum] != nil || bytes.IndexByte(b, 0) >= 0 ||
			bytes.Contains(b[:min(len(b), 4096)], []byte("DO NOT EDIT")) {
			return nil
		}
		texts[sum] = b
		files = append(files, file{sha256.Sum256([]byte(p)), sum})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b file) int { return bytes.Compare(a.name[:], b.name[:]) })
	out := make([][]byte, len(files))
	for i, f := range files {
		out[i] = texts[f.text]
	}
	return out, nil
}
