package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ckpt is the directory of checkpoints, and stepTime the time of a step, in which the directory is mostly at rest.
const (
	ckpt     = "/ckpt"
	stepTime = 2 * time.Second
	// keptSteps is the number of steps that a framework keeps, as save_total_limit.
	keptSteps = 2
)

// framework saves steps in the way of a framework. Each file is written anew and its content depends on its name and
// step.
type framework struct {
	save func(step int) error
	// name is the file or folder of a step, and whole a file in it that is there if all others are; "" for itself.
	name, whole string
	files       []string // of a step; none if it is a file
}

// The files of a step, in the order in which they are written.
var (
	orbaxFiles   = []string{"state/d/0a1b", "state/manifest.ocdbt", "state/_METADATA", "_CHECKPOINT_METADATA"}
	trainerFiles = []string{"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}
)

var frameworks = map[string]framework{
	"torch":   {save: saveTorch, name: "model.pt"},
	"orbax":   {save: saveOrbax, name: "%d", whole: "_CHECKPOINT_METADATA", files: orbaxFiles},
	"trainer": {save: saveTrainer, name: "checkpoint-%d", whole: "trainer_state.json", files: trainerFiles},
}

// train counts steps, and continues after the newest that it finds.
func train(of string) error {
	f, ok := frameworks[of]
	if !ok {
		return fmt.Errorf("framework %q: unknown: want torch, orbax or trainer", of)
	}
	step, err := f.load()
	if err != nil {
		return fmt.Errorf("loading a checkpoint: %w", err)
	}
	if err := usable(); err != nil {
		return fmt.Errorf("using a checkpoint's files: %w", err)
	}
	fmt.Printf("begins at %d as user %d\n", step, os.Getuid())
	for {
		step++
		if err := f.save(step); err != nil {
			return fmt.Errorf("saving step %d: %w", step, err)
		}
		fmt.Println("saved", step)
		time.Sleep(stepTime)
	}
}

// load returns the newest whole step, 0 if there is none. It checks all files of the step.
func (f framework) load() (newest int, err error) {
	if len(f.files) == 0 {
		b, err := os.ReadFile(filepath.Join(ckpt, f.name))
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		if err != nil || len(b) < 8 {
			return 0, errors.Join(err, fmt.Errorf("%s: %d bytes", f.name, len(b)))
		}
		newest = int(binary.LittleEndian.Uint64(b))
		return newest, check(filepath.Join(ckpt, f.name), f.name, newest)
	}
	all, err := os.ReadDir(ckpt)
	if err != nil {
		return 0, err
	}
	for _, e := range all {
		n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), strings.TrimSuffix(f.name, "%d")))
		if err != nil {
			continue // unfinished
		}
		if _, err := os.Stat(filepath.Join(ckpt, e.Name(), f.whole)); err == nil {
			newest = max(newest, n)
		}
	}
	for _, name := range f.files {
		if newest > 0 {
			err = errors.Join(err, check(filepath.Join(ckpt, fmt.Sprintf(f.name, newest), name), name, newest))
		}
	}
	return newest, err
}

// content is the content of a file of a step.
func content(name string, step int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(step))
	sum := sha256.Sum256(append([]byte(name), b...))
	return append(b, bytes.Repeat(sum[:], 2048)...)
}

func check(path, name string, step int) error {
	b, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(b, content(name, step)) {
		err = fmt.Errorf("%s: not what step %d wrote", path, step)
	}
	return err
}

// usable checks that this user can do with each restored file what its owner can.
func usable() error {
	return filepath.WalkDir(ckpt, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			probe := filepath.Join(path, ".probe")
			return errors.Join(os.WriteFile(probe, nil, 0o600), os.Remove(probe))
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil {
			err = f.Chmod(info.Mode())
		}
		return errors.Join(err, f.Close())
	})
}

// saveTorch writes another file, which no other user may read, and renames it.
func saveTorch(step int) error {
	path := filepath.Join(ckpt, "model.pt")
	if err := os.WriteFile(path+".tmp", content("model.pt", step), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// saveOrbax writes another folder and renames it.
func saveOrbax(step int) error {
	path := filepath.Join(ckpt, strconv.Itoa(step))
	temporary := fmt.Sprintf("%s.orbax-checkpoint-tmp-%d", path, time.Now().UnixMicro())
	if err := writeAll(temporary, orbaxFiles, step); err != nil {
		return err
	}
	return errors.Join(os.Rename(temporary, path), os.RemoveAll(filepath.Join(ckpt, strconv.Itoa(step-keptSteps))))
}

// saveTrainer writes a folder in its place, the state last, and then removes an older one.
func saveTrainer(step int) error {
	folder := func(n int) string { return filepath.Join(ckpt, fmt.Sprintf("checkpoint-%d", n)) }
	return errors.Join(writeAll(folder(step), trainerFiles, step), os.RemoveAll(folder(step-keptSteps)))
}

// writeAll writes the files of a step. The first is for its owner alone.
func writeAll(dir string, files []string, step int) error {
	if err := os.RemoveAll(dir); err != nil { // an unfinished one
		return err
	}
	for i, name := range files {
		path, mode := filepath.Join(dir, name), fs.FileMode(0o644)
		if i == 0 {
			mode = 0o600
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content(name, step), mode); err != nil {
			return err
		}
	}
	return nil
}
