package mystery

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/client"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p"
)

// maxTask bounds a task's job file, bytes.
const maxTask = job.MaxFile

// Of makes what a peer's configuration asks for; nil when it asks for nothing. It listens to the orders that the peer hears: call it before
// the peer runs.
func Of(p *node.Peer, cache, version string, log *slog.Logger) (*Service, error) {
	c, g := p.Config().Mystery, p.Genesis()
	if !c.Enabled() {
		return nil, nil
	}
	perDay, err := market.ParseDecimal(c.PerDay, g.Decimals)
	if err != nil {
		return nil, fmt.Errorf("mystery.perDay: %w", err)
	}
	var tasks []Task
	for i, t := range c.Tasks {
		path := p.InHome(t.Job)
		info, err := os.Stat(path)
		if err == nil && info.Size() > maxTask {
			err = fmt.Errorf("%d bytes, at most %d are read", info.Size(), maxTask)
		}
		if err != nil {
			return nil, fmt.Errorf("mystery.tasks[%d]: %w", i, err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("mystery.tasks[%d]: %w", i, err)
		}
		spec, err := job.Parse(data, g.Decimals)
		if err != nil {
			return nil, fmt.Errorf("mystery.tasks[%d]: %s: %w", i, path, err)
		}
		tasks = append(tasks, Task{Spec: spec.In(filepath.Dir(path)), Expect: t.Expect})
	}
	entries := c.Entries
	if len(entries) == 0 {
		entries = p.Config().Bootstrap
	}
	if len(entries) == 0 {
		return nil, errors.New("mystery.entries: none, and no bootstrap: identities need a peer to enter the network by that is not this one")
	}
	psk := ""
	if c := p.Config(); c.PrivateNetwork != "" {
		psk = p.InHome(c.PrivateNetwork)
	}
	demand := &Demand{}
	p.OnOrder(demand.Heard)
	s, err := New(Config{Dir: p.InHome(node.DirMystery), Genesis: g, Self: p.Key(), PerDay: market.Amount(perDay), Tasks: tasks, Demand: demand, Book: p.Book(),
		Store: p.Journal(), Open: Light(client.Config{Peers: entries, Genesis: p.InHome(node.FileGenesis), PSK: psk, Cache: cache, Version: version, Log: log}), Log: log.With("role", "mystery")})
	if err != nil {
		return nil, err
	}
	p.PublishProbes(s)
	return s, nil
}

// Create makes an identity below a peer's home and returns its name and its wallet's address, which is its key's too.
func Create(home string) (name string, wallet sign.Key, err error) {
	dir := filepath.Join(home, node.DirMystery)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", wallet, err
	}
	at, err := os.MkdirTemp(dir, "renter-")
	if err != nil {
		return "", wallet, err
	}
	if _, err := p2p.CreateIdentity(filepath.Join(at, node.FileIdentity)); err != nil {
		return "", wallet, err
	}
	wallet, err = Wallet(home, filepath.Base(at))
	return filepath.Base(at), wallet, err
}

// Wallet is the address of an identity's wallet.
func Wallet(home, name string) (sign.Key, error) {
	key, _, err := node.LoadKeys(filepath.Join(home, node.DirMystery, name), node.Config{})
	return key.Key(), err
}
