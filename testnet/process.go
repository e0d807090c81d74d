package testnet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
)

// Peer is one peer process of a testnet, with a home directory of its own.
type Peer struct {
	Name  string   `json:"name"`
	Home  string   `json:"home"`
	PID   int      `json:"pid"`
	Key   sign.Key `json:"key"`
	Owner sign.Key `json:"owner"`

	place  Place
	yields bool // its process gives way to those of buyers
	binary string
	env    []string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is reaped
	err    error
}

const (
	// stopGrace is the time for a peer to stop before it is killed.
	stopGrace = 15 * time.Second
	// dumpGrace is the time for a peer to print its goroutines.
	dumpGrace = 2 * time.Second
	// yieldNice is the niceness of selling peers and of their programs in a network of many peers. Outside of testnets
	// a buyer has a machine for itself.
	yieldNice = 10
)

// start runs the peer. The kernel ends the process with the thread that started it, so start keeps that thread while
// the process runs.
func (p *Peer) start() error {
	log, err := os.OpenFile(filepath.Join(p.Home, "peer.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	_ = os.Remove(filepath.Join(p.Home, config.FileAPI)) // of a killed process
	cmd := exec.Command(p.binary, "up", "--home", p.Home)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	p.cmd, p.exited = cmd, make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer log.Close()
		var err error
		if p.place.Enter == nil {
			defer runtime.UnlockOSThread()
		} else {
			err = p.place.Enter() // the thread stays there and ends with this goroutine
		}
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			p.PID = cmd.Process.Pid
			if p.yields {
				err = syscall.Setpriority(syscall.PRIO_PGRP, p.PID, yieldNice)
			}
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	return nil
}

// Running reports whether the process runs.
func (p *Peer) Running() bool {
	if p.exited == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL, as a power cut would.
func (p *Peer) Kill() error {
	if !p.Running() {
		return fmt.Errorf("%s does not run", p.Name)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing %s: %w", p.Name, err)
	}
	<-p.exited
	return nil
}

// Start starts a killed peer on its old state and waits until it is ready.
func (p *Peer) Start(ctx context.Context) error {
	if p.Running() {
		return fmt.Errorf("%s runs already", p.Name)
	}
	if err := p.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	_, err := p.Ready(ctx, 1)
	return err
}

// Launch starts a peer without waiting until it is ready.
func (p *Peer) Launch() error {
	if p.Running() {
		return fmt.Errorf("%s runs already", p.Name)
	}
	return p.start()
}

// stop terminates the process and waits for its end.
func (p *Peer) stop() error {
	if !p.Running() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopGrace):
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT) // it prints its goroutines
	select {
	case <-p.exited:
	case <-time.After(dumpGrace):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	return fmt.Errorf("%s did not stop within %v and was killed: its goroutines are at the end of %s",
		p.Name, stopGrace, filepath.Join(p.Home, "peer.log"))
}

// Binary is the program that the peer runs.
func (p *Peer) Binary() string { return p.binary }

// Client is a client of the peer's API.
func (p *Peer) Client() (*api.Client, error) {
	return api.Dial(p.Home, config.FileAPI)
}

// Ready waits until the peer answers, sees the chain and has at least peers connections.
func (p *Peer) Ready(ctx context.Context, peers int) (api.NodeInfo, error) {
	var last error
	for {
		c, err := p.Client()
		if err == nil {
			var info api.NodeInfo
			if info, err = api.GetNode.Call(ctx, c, api.None{}); err == nil {
				switch {
				case !info.ChainUp:
					err = fmt.Errorf("the peer does not see the chain: %s", info.ChainErr)
				case info.Peers < peers:
					err = fmt.Errorf("the peer is connected to %d of at least %d peers", info.Peers, peers)
				default:
					return info, nil
				}
			}
		}
		last = err
		select {
		case <-ctx.Done():
			return api.NodeInfo{}, fmt.Errorf("%s is not ready: %w (its log: %s)",
				p.Name, last, filepath.Join(p.Home, "peer.log"))
		case <-p.exited:
			return api.NodeInfo{}, fmt.Errorf("%s ended: %w (its log: %s)",
				p.Name, errOr(p.err, "exit status 0"), filepath.Join(p.Home, "peer.log"))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func errOr(err error, text string) error {
	if err != nil {
		return err
	}
	return errors.New(text)
}

// WaitFree waits until all units of a peer are free.
func WaitFree(ctx context.Context, c *api.Client) error {
	for {
		info, err := api.GetNode.Call(ctx, c, api.None{})
		if err == nil && info.FreeUnits == info.Units {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d units are free: %w", info.FreeUnits, info.Units, errors.Join(ctx.Err(), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// WaitOffers waits until a peer has found want offers in the DHT and their providers have answered it.
func WaitOffers(ctx context.Context, c *api.Client, want int) error {
	for {
		offers, err := api.ListOffers.Call(ctx, c, api.ByClass{Class: "cpu"})
		answered := 0
		for _, o := range offers {
			if o.Answered {
				answered++
			}
		}
		if err == nil && answered == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d offers were found: %w", answered, want, errors.Join(ctx.Err(), err))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// short is a command line with paths relative to the working directory, if they are below it.
func short(text string) string {
	wd, err := os.Getwd()
	if err != nil {
		return text
	}
	return strings.ReplaceAll(text, wd+string(filepath.Separator), "")
}

// Command runs the program with a given home, as its user would, shows the command, and decodes its JSON output. into
// is optional; if nil, the output is ignored.
func Command(ctx context.Context, say func(string, ...any), binary, home string, into any, args ...string) error {
	say("   $ starling --home %s %s", short(home), short(strings.Join(args, " ")))
	var errs bytes.Buffer
	c := exec.CommandContext(ctx, binary, append([]string{"--home", home, "-o", "json"}, args...)...)
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("starling %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	for line := range strings.Lines(errs.String()) {
		say("     %s", strings.TrimSpace(line))
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("starling %s: decoding its output: %w", strings.Join(args, " "), err)
	}
	return nil
}
