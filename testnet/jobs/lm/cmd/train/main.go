// Command train is the program of the demo's workers, built with GOOS=wasip1 GOARCH=wasm.
//
//	train   one worker's part of a round. Reads its shard from /data/shard.bin and the weights of the round before
//	        from /carry/weights.bin (none in round 0). Writes /out/weights.bin.
//	reduce  the end of a round. Reads each worker's /in/RANK/weights.bin and the same /carry/weights.bin, averages,
//	        evaluates on /data/heldout.bin. Writes /out/weights.bin and /out/metrics.json.
//
// The environment selects the part: STARLING_RANK, STARLING_COUNT (workers), STARLING_ROUND, STARLING_ROUNDS (total
// number: the shard is read in that many equal slices, one a round). LM_BITS sets the size of the table.
//
// The output is a function of the inputs: a repeated round, on any machine, gives the same bytes.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/starling-network/starling/testnet/jobs/lm/model"
)

const (
	maxShard   = 256 << 20
	maxWorkers = 1024
)

func main() {
	if err := run(os.Args[1:], os.Getenv, os.Stdout, "/"); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

// job is one invocation. root is "/" except in tests.
type job struct {
	root                       string
	rank, count, round, rounds int
	bits                       int
	out                        io.Writer
}

func run(args []string, getenv func(string) string, out io.Writer, root string) error {
	if len(args) != 1 {
		return errors.New("usage: train | reduce")
	}
	j := job{root: root, out: out, bits: model.DefaultBits}
	for _, v := range []struct {
		name     string
		to       *int
		low, top int
		needed   bool
	}{
		{"STARLING_COUNT", &j.count, 1, maxWorkers, true},
		{"STARLING_RANK", &j.rank, 0, maxWorkers - 1, args[0] == "train"},
		{"STARLING_ROUNDS", &j.rounds, 1, 1 << 16, true},
		{"STARLING_ROUND", &j.round, 0, 1<<16 - 1, true},
		{"LM_BITS", &j.bits, model.MinBits, model.MaxBits, false},
	} {
		text := getenv(v.name)
		if text == "" && !v.needed {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < v.low || n > v.top {
			return fmt.Errorf("%s is %q, want a number from %d to %d", v.name, text, v.low, v.top)
		}
		*v.to = n
	}
	if j.rank >= j.count || j.round >= j.rounds {
		return fmt.Errorf("rank %d of %d, round %d of %d: counted from 0", j.rank, j.count, j.round, j.rounds)
	}
	switch args[0] {
	case "train":
		return j.train()
	case "reduce":
		return j.reduce()
	}
	return fmt.Errorf("unknown command %q, want train or reduce", args[0])
}

func (j job) path(parts ...string) string {
	return filepath.Join(append([]string{j.root}, parts...)...)
}

// carry reads the last round's output, or makes an untrained model before the first round.
func (j job) carry() (m *model.Model, sum uint64, err error) {
	m, sum, err = readWeights(j.path("carry", "weights.bin"))
	switch {
	case errors.Is(err, fs.ErrNotExist) && j.round == 0:
		m = model.New(j.bits)
		return m, m.Sum(), nil
	case err != nil:
		return nil, 0, err
	case int(m.Round) != j.round:
		return nil, 0, fmt.Errorf("carried weights are of round %d, want round %d", m.Round, j.round)
	}
	return m, sum, nil
}

func (j job) train() error {
	m, base, err := j.carry()
	if err != nil {
		return err
	}
	text, err := readText(j.path("data", "shard.bin"))
	if err != nil {
		return err
	}
	from, to := model.Slice(len(text), j.round, j.rounds)
	m.Base = base
	bits := m.Train(text, from, to, func(done int, bits float64) {
		fmt.Fprintf(j.out, "round %d rank %d: %3d%% %.4f bits per byte\n", j.round, j.rank, 100*done/(to-from), bits)
	})
	fmt.Fprintf(j.out, "round %d rank %d: trained on %d bytes, %.4f bits per byte on the way\n",
		j.round, j.rank, to-from, bits)
	return writeWeights(j.path("out", "weights.bin"), m)
}

// metrics is /out/metrics.json.
type metrics struct {
	Round       int     `json:"round"`         // counted from 0
	BitsPerByte float64 `json:"bits_per_byte"` // on the held-out text, to the millionth
	Workers     int     `json:"workers"`
	Bytes       uint64  `json:"bytes"` // training bytes so far, of all workers
}

func (j job) reduce() error {
	base, sum, err := j.carry()
	if err != nil {
		return err
	}
	heldOut, err := readText(j.path("data", "heldout.bin"))
	if err != nil {
		return err
	}
	workers := make([]*model.Model, j.count)
	for k := range workers {
		if workers[k], _, err = readWeights(j.path("in", strconv.Itoa(k), "weights.bin")); err != nil {
			return fmt.Errorf("rank %d: %w", k, err)
		}
	}
	m, err := model.Average(base, sum, workers)
	if err != nil {
		return err
	}
	m = m.Rounded() // the figures describe the file's content
	bits := m.Evaluate(heldOut)
	fmt.Fprintf(j.out, "round %d: %d workers averaged, %.4f bits per byte held out\n", j.round, j.count, bits)
	if err := writeWeights(j.path("out", "weights.bin"), m); err != nil {
		return err
	}
	b, err := json.Marshal(metrics{j.round, math.Round(bits*1e6) / 1e6, j.count, m.Bytes})
	if err != nil {
		return err
	}
	return os.WriteFile(j.path("out", "metrics.json"), append(b, '\n'), 0o644)
}

func readText(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxShard || info.Size() == 0 {
		return nil, fmt.Errorf("%s has %d bytes, want 1 to %d", name, info.Size(), maxShard)
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return b, nil
}

func readWeights(name string) (*model.Model, uint64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	m, sum, err := model.Read(f)
	if err != nil {
		return nil, 0, fmt.Errorf("reading %s: %w", name, err)
	}
	return m, sum, nil
}

func writeWeights(name string, m *model.Model) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := m.Write(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
