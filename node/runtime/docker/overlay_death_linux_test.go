package docker

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	"github.com/starling-network/starling/node/runtime/docker/sidecar"
)

// sidecarOf is the process of an execution's sidecar.
func sidecarOf(t *testing.T, r *Runtime, h runtime.Handle) int {
	t.Helper()
	e, err := r.keeper.find(h)
	if err != nil {
		t.Fatal(err)
	}
	if e.net == nil {
		t.Fatal("it has no sidecar")
	}
	pid, err := e.net.Pid()
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// lost wants the execution to end as one whose network is gone, and nothing to be left.
func lost(t *testing.T, r *Runtime, h runtime.Handle) {
	t.Helper()
	if e := wait(t, r, h); e.Reason != runtime.ReasonLost || e.Code != runtime.CodeLost {
		t.Errorf("%+v", e)
	}
	if err := r.Destroy(t.Context(), h); err != nil {
		t.Error(err)
	}
	until(t, "its containers are gone", func() bool { return containers(t, r) == 0 })
	if _, err := os.Stat(h.Dir); err == nil {
		t.Error("its directory is still there")
	}
}

func TestSidecarDies(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *Runtime, runtime.Handle) error{
		"killed": func(t *testing.T, r *Runtime, h runtime.Handle) error {
			return syscall.Kill(sidecarOf(t, r, h), syscall.SIGKILL)
		},
		"removed": func(t *testing.T, r *Runtime, h runtime.Handle) error {
			return r.engine.ContainerRemove(t.Context(), engine.SidecarName(h.Dir), container.RemoveOptions{Force: true})
		},
		"killed while the program is paused": func(t *testing.T, r *Runtime, h runtime.Handle) error {
			if err := r.Pause(t.Context(), h); err != nil {
				return err
			}
			return syscall.Kill(sidecarOf(t, r, h), syscall.SIGKILL)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRuntime(t, shared, nil)
			ref := pulled(t, r, "plain", nil)
			for _, s := range []runtime.Spec{node(t, ref, 0, "sleep"), lone(t, ref, "sleep")} {
				h := start(t, r, s)
				if err := end(t, r, h); err != nil {
					t.Fatal(err)
				}
				lost(t, r, h)
			}
		})
	}
}

// What an engine says when it stops does not end a sidecar: programs that are asked to end may need their network to the last.
func TestSidecarOutlivesATerm(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	h := start(t, r, node(t, pulled(t, r, "plain", nil), 0, "sleep"))
	if err := syscall.Kill(sidecarOf(t, r, h), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.SetMTU(t.Context(), h, 1400); err != nil {
		t.Errorf("the sidecar does not answer: %v", err)
	}
	if err := r.Stop(t.Context(), h, 0); err != nil {
		t.Fatal(err)
	}
	until(t, "its containers are gone", func() bool { return containers(t, r) == 0 })
}

// The peer is killed while two members talk: its successor gets the same devices and carries on; a program that was not ended meanwhile
// notices nothing but the gap.
func TestOverlayPeerKilled(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	cfg := r.cfg
	cfg.Logger = nil
	handles := killedPeer(t, peerTask{Config: cfg, Specs: []runtime.Spec{
		node(t, ref, 0, "nodes", "this is 0", "10.77.0.3:7000"), node(t, ref, 1, "nodes", "this is 1", "10.77.0.2:7000")}})
	for _, h := range handles {
		if err := r.Recover(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	a, b := tun(t, r, handles[0]), tun(t, r, handles[1])
	go carry(t, a, b)
	go carry(t, b, a)
	for i, h := range handles {
		log, err := r.Logs(t.Context(), h, runtime.Stdout, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("[127.0.0.1/8 10.77.0.%d/16]\nother says this is %d\n", 2+i, 1-i)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(log, got); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		_ = log.Close()
		if err := r.SetFiles(t.Context(), h, map[string][]byte{"/etc/hosts": []byte("again\n")}); err != nil {
			t.Error(err)
		}
		if err := r.Destroy(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	if n := containers(t, r); n != 0 {
		t.Errorf("%d containers are left", n)
	}
}

// The sidecar dies while there is no peer: the next one ends the program, which has no network any more.
func TestSidecarDiesWithoutPeer(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	cfg := r.cfg
	cfg.Logger = nil
	h := killedPeer(t, peerTask{Config: cfg, Specs: []runtime.Spec{node(t, ref, 0, "sleep")}})[0]
	s, err := rundir.ReadState(h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.engine.ContainerInspect(t.Context(), s.Sidecar)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(info.State.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := r.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	lost(t, r, h)
}

// Nobody recovers it: guard and sidecar end by themselves, and both containers go with the next New.
func TestOverlayPeerNeverReturns(t *testing.T) {
	t.Parallel()
	probe := newRuntime(t, shared, nil)
	ref := pulled(t, probe, "plain", nil)
	cfg := probe.cfg
	cfg.Peer, cfg.Logger, cfg.Grace = cfg.Peer+"-gone", nil, 200*time.Millisecond
	h := killedPeer(t, peerTask{Config: cfg, Specs: []runtime.Spec{node(t, ref, 0, "sleep")}})[0]
	until(t, "the guard ends the program", func() bool { _, err := rundir.ReadReport(h.Dir); return err == nil })
	until(t, "the sidecar ends", func() bool {
		info, err := probe.engine.ContainerInspect(t.Context(), engine.SidecarName(h.Dir))
		return err == nil && !info.State.Running
	})
	again := newRuntime(t, shared, func(c *Config) { c.Peer, c.Grace = cfg.Peer, cfg.Grace })
	until(t, "its containers are removed", func() bool { return containers(t, again) == 0 })
	if err := again.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	lost(t, again, h)
}

// The peer is killed at some moment of a start, whichever: nothing of it is left.
func TestOverlayPeerKilledWhileStarting(t *testing.T) {
	t.Parallel()
	probe := newRuntime(t, shared, nil)
	ref := pulled(t, probe, "plain", nil)
	began := time.Now()
	start(t, probe, node(t, ref, 0, "sleep"))
	took := time.Since(began)
	for i := range 3 {
		cfg := probe.cfg
		cfg.Peer, cfg.Logger, cfg.Grace = fmt.Sprintf("%s-%d", cfg.Peer, i), nil, 200*time.Millisecond
		cmd, out := peer(t, peerTask{Config: cfg, Specs: []runtime.Spec{node(t, ref, 0, "sleep")}})
		if _, err := out.Read(make([]byte, 1)); err != nil { // it begins
			t.Fatal(err)
		}
		time.Sleep(took * time.Duration(i+1) / 4) // only chooses the moment
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		until(t, fmt.Sprintf("nothing is left of start %d", i), func() bool {
			// An engine may take its time over what the killed peer asked for last: then the next but one finds it.
			again := newRuntime(t, shared, func(c *Config) { c.Peer, c.Grace = cfg.Peer, cfg.Grace })
			defer again.Close()
			for range 100 {
				if containers(t, again) == 0 {
					return true
				}
				time.Sleep(10 * time.Millisecond)
			}
			return false
		})
	}
}

// A start that fails at any of its steps leaves neither container nor directory.
func TestOverlayStartFails(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, shared, nil)
	ref := pulled(t, r, "plain", nil)
	taken := func(t *testing.T, name string) {
		t.Helper()
		empty, err := r.sidecars.Empty(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.engine.ContainerCreate(t.Context(), &container.Config{Image: empty, Cmd: []string{"x"}}, nil, nil, nil, name); err != nil {
			t.Fatal(err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		edit func(*testing.T, *runtime.Spec)
	}{
		"no such program":       {t.Context(), func(t *testing.T, s *runtime.Spec) { s.Entrypoint = []string{"/none"} }},
		"the sidecar's name":    {t.Context(), func(t *testing.T, s *runtime.Spec) { taken(t, engine.SidecarName(s.Dir)) }},
		"the container's name":  {t.Context(), func(t *testing.T, s *runtime.Spec) { taken(t, engine.ContainerName(s.Dir)) }},
		"a device not there":    {t.Context(), func(t *testing.T, s *runtime.Spec) { s.GPUs = []string{"GPU-unknown"} }},
		"nobody waits for it":   {cancelled, func(*testing.T, *runtime.Spec) {}},
		"a directory in memory": {t.Context(), func(t *testing.T, s *runtime.Spec) { s.WorkDir = "/not/there" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := node(t, ref, 0, "sleep")
			test.edit(t, &s)
			if _, err := r.Start(test.ctx, s); err == nil {
				t.Fatal("it started")
			}
			for _, c := range []string{engine.ContainerName(s.Dir), engine.SidecarName(s.Dir)} {
				if _, err := r.engine.ContainerInspect(t.Context(), c); !engine.Absent(err) {
					t.Errorf("%s is left: %v", c, err)
				}
			}
			if _, err := os.Stat(s.Dir); err == nil {
				t.Error("its directory is left")
			}
		})
	}
}

// The image of sidecars is made anew where somebody removed it, and one that holds something is not taken for it.
func TestEmptyImage(t *testing.T) {
	t.Parallel()
	e := ownEngine(t)
	r := newRuntime(t, e, nil)
	id, err := r.sidecars.Empty(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	ref := push(t, lab, "plain", nil)
	if err := r.Pull(t.Context(), ref, nil, nil); err != nil {
		t.Fatal(err)
	}
	img, err := r.images.Config(t.Context(), ref)
	if err == nil {
		err = r.engine.ImageTag(t.Context(), img.ID, sidecar.EmptyTag)
	}
	if err != nil {
		t.Fatal(err)
	}
	if found := sidecar.FoundEmpty(t.Context(), r.engine); found != "" {
		t.Errorf("an image with files passes as %s", found)
	}
	if _, err := r.engine.ImageRemove(t.Context(), id, image.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	start(t, r, node(t, ref, 0, "sleep"))
	if again, err := r.sidecars.Empty(t.Context(), false); err != nil || again == id {
		t.Errorf("%s after %s, %v", again, id, err)
	}
}
