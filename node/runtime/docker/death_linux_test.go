package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	"github.com/starling-network/starling/node/runtime/docker/sidecar"
	testengine "github.com/starling-network/starling/testnet/engine"
)

// peerEnv makes the test binary a peer that starts executions, prints their handles and waits to be killed.
const peerEnv = "STARLING_TEST_PEER"

type peerTask struct {
	Config Config
	Specs  []runtime.Spec
	Pause  bool
}

func peerMain(task string) {
	var p peerTask
	if err := json.Unmarshal([]byte(task), &p); err != nil {
		panic(err)
	}
	r, err := New(context.Background(), p.Config)
	if err != nil {
		panic(err)
	}
	out := json.NewEncoder(os.Stdout)
	fmt.Println()
	for _, s := range p.Specs {
		h, err := r.Start(context.Background(), s)
		if err == nil && p.Pause {
			err = r.Pause(context.Background(), h)
		}
		if err == nil {
			err = out.Encode(h)
		}
		if err != nil {
			panic(err)
		}
	}
	select {}
}

// peer is a process of a peer of its own. Its first line is empty, then each execution's handle is one.
func peer(t *testing.T, task peerTask) (*exec.Cmd, io.Reader) {
	t.Helper()
	b, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerEnv+"="+string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// killedPeer starts executions under a peer of its own, and kills it.
func killedPeer(t *testing.T, task peerTask) []runtime.Handle {
	t.Helper()
	cmd, out := peer(t, task)
	var handles []runtime.Handle
	for lines := bufio.NewScanner(out); len(handles) < len(task.Specs) && lines.Scan(); {
		if len(lines.Bytes()) == 0 {
			continue
		}
		h, err := runtime.UnmarshalHandle(lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if len(handles) != len(task.Specs) {
		t.Fatal("the peer ended early")
	}
	return handles
}

// containers counts a peer's containers.
func containers(t *testing.T, r *Runtime) int {
	t.Helper()
	running, err := r.engine.ContainerList(t.Context(), container.ListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range running {
		if c.Labels[engine.LabelPeer] == r.cfg.Peer {
			n++
		}
	}
	return n
}

// until waits for what must come to be.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within five minutes: %s", what)
		}
	}
}

func TestPeerKilled(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	cfg := r.cfg
	cfg.Logger = nil
	handles := killedPeer(t, peerTask{Config: cfg, Specs: []runtime.Spec{spec(t, ref, "polite"), spec(t, ref, "exit", "5")}})
	if err := r.Recover(t.Context(), handles[0]); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(t.Context(), handles[0], time.Minute); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{3, 5} {
		if err := r.Recover(t.Context(), handles[i]); err != nil {
			t.Fatal(err)
		}
		if e := wait(t, r, handles[i]); e.Code != want || e.Reason != runtime.ReasonNone {
			t.Errorf("%+v, want code %d", e, want)
		}
		if err := r.Destroy(t.Context(), handles[i]); err != nil {
			t.Error(err)
		}
	}
	if n := containers(t, r); n != 0 {
		t.Errorf("%d containers are left", n)
	}
}

// Nobody recovers them: the guard of one that runs ends it, the next New ends one that is paused; both are removed.
func TestPeerNeverReturns(t *testing.T) {
	t.Parallel()
	for name, paused := range map[string]bool{"running": false, "paused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			neverReturns(t, newRuntime(t, shared, nil), paused)
		})
	}
}

func neverReturns(t *testing.T, probe *Runtime, paused bool) {
	ref := pulled(t, probe, "plain", nil)
	cfg := probe.cfg
	cfg.Peer, cfg.Logger, cfg.Grace = cfg.Peer+"-gone", nil, 200*time.Millisecond
	h := killedPeer(t, peerTask{Config: cfg, Specs: []runtime.Spec{spec(t, ref, "spin")}, Pause: paused})[0]
	if !paused {
		until(t, "the guard ends the program", func() bool { _, err := rundir.ReadReport(h.Dir); return err == nil })
	}
	again := newRuntime(t, shared, func(c *Config) { c.Peer, c.Grace = cfg.Peer, cfg.Grace })
	until(t, "its container is removed", func() bool { return containers(t, again) == 0 })
	if err := again.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, again, h); e.Reason != runtime.ReasonLost || e.Code != runtime.CodeLost {
		t.Errorf("%+v", e)
	}
}

func TestContainersOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	img, err := r.images.Config(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	// It has this peer's labels, as an image could give to any container, but not the name.
	made, err := r.engine.ContainerCreate(t.Context(), &container.Config{Image: img.ID, Labels: map[string]string{engine.LabelPeer: r.cfg.Peer, engine.LabelDir: "/x"}}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.engine.Remove(context.Background(), made.ID) })
	h := start(t, r, spec(t, ref, "polite"))
	_ = newRuntime(t, shared, func(c *Config) { c.Peer = r.cfg.Peer; c.Grace = time.Millisecond }).Close()
	if n := containers(t, r); n != 2 {
		t.Errorf("%d containers, want 2", n)
	}
	if err := r.Stop(t.Context(), h, time.Minute); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, h); e.Code != 3 {
		t.Errorf("%+v", e)
	}
}

func TestGuardKilledFromOutside(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	h := start(t, r, spec(t, pulled(t, r, "plain", nil), "spin"))
	if err := syscall.Kill(guardOf(t, r, h), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, h); e.Reason != runtime.ReasonLost || e.Code != runtime.CodeLost {
		t.Errorf("%+v", e)
	}
}

// engineDeath ends an engine while an execution runs, with and without live-restore.
func engineDeath(t *testing.T, sig syscall.Signal, args ...string) (e *testengine.Engine, r *Runtime, plain runtime.Handle, overlay *runtime.Handle) {
	t.Helper()
	e = ownEngine(t, args...)
	r = newRuntime(t, e, nil)
	ref := push(t, lab, "plain", nil)
	if err := r.Pull(t.Context(), ref, nil, nil); err != nil {
		t.Fatal(err)
	}
	plain = start(t, r, spec(t, ref, "polite"))
	if _, err := os.Stat(sidecar.TunDevice); err == nil {
		h := start(t, r, node(t, ref, 0, "sleep"))
		overlay = &h
	}
	e.Signal(sig)
	if _, err := r.Start(t.Context(), spec(t, ref, "hello")); !errors.Is(err, runtime.ErrEngine) || !strings.Contains(err.Error(), "running?") {
		t.Errorf("starting without an engine: %v", err)
	}
	if err := r.Pull(t.Context(), ref, nil, nil); !errors.Is(err, runtime.ErrEngine) {
		t.Errorf("pulling without an engine: %v", err)
	}
	if err := r.Probe(t.Context()); !errors.Is(err, runtime.ErrEngine) {
		t.Errorf("asking for an engine: %v", err)
	}
	if _, err := New(t.Context(), r.cfg); !errors.Is(err, runtime.ErrEngine) {
		t.Errorf("a runtime without an engine: %v", err)
	}
	return e, r, plain, overlay
}

func TestEngineDiesAndKeepsContainers(t *testing.T) {
	t.Parallel()
	e, r, h, overlay := engineDeath(t, syscall.SIGKILL, "--live-restore")
	if _, err := r.Stats(t.Context(), h); err != nil {
		t.Errorf("the execution is out of reach: %v", err)
	}
	if err := r.Pause(t.Context(), h); !errors.Is(err, runtime.ErrEngine) {
		t.Errorf("pausing without an engine: %v", err)
	}
	reach := func() {
		t.Helper()
		if overlay == nil {
			return
		}
		tun(t, r, *overlay)
		if err := r.SetMTU(t.Context(), *overlay, 1400); err != nil {
			t.Errorf("a sidecar is out of reach: %v", err)
		}
	}
	reach()
	restart(t, e)
	reach()
	if err := r.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	if err := r.Stop(t.Context(), h, time.Minute); err != nil {
		t.Fatal(err)
	}
	if e := wait(t, r, h); e.Code != 3 || e.Reason != runtime.ReasonNone {
		t.Errorf("%+v", e)
	}
	if err := r.Destroy(t.Context(), h); err != nil {
		t.Error(err)
	}
}

func TestEngineDiesAndEndsContainers(t *testing.T) {
	t.Parallel()
	e, r, h, overlay := engineDeath(t, syscall.SIGKILL)
	restart(t, e) // it ends what it finds
	if e := wait(t, r, h); e.Reason != runtime.ReasonLost || e.Code != runtime.CodeLost {
		t.Errorf("%+v", e)
	}
	if err := r.Destroy(t.Context(), h); err != nil {
		t.Error(err)
	}
	if overlay != nil {
		lost(t, r, *overlay)
	}
}

func TestEngineIsStopped(t *testing.T) {
	t.Parallel()
	_, r, h, overlay := engineDeath(t, syscall.SIGTERM) // it asks containers to end, then kills them
	if e := wait(t, r, h); e.Reason != runtime.ReasonLost || e.Code != runtime.CodeLost {
		t.Errorf("%+v", e)
	}
	if overlay == nil {
		return
	}
	if e := wait(t, r, *overlay); e.Reason != runtime.ReasonLost || e.Code != runtime.CodeLost {
		t.Errorf("with an overlay: %+v", e)
	}
}
