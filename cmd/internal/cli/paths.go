package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/config"
)

// Home is the directory of the peer, or of the light client, that the command is for.
func (a *App) Home() (string, error) {
	if _, light := a.Light(); light {
		return a.ClientHome()
	}
	return a.PeerHome()
}

// ClientHome is the light client's directory: --home, or "client" in the peer's.
func (a *App) ClientHome() (string, error) {
	if a.home != "" {
		return filepath.Abs(a.home)
	}
	home, err := a.PeerHome()
	return filepath.Join(home, "client"), err
}

// PeerHome is the peer's directory: --home, $STARLING_HOME, $XDG_DATA_HOME/starling or ~/.local/share/starling, the
// first that is set. One directory holds a whole peer: several can exist on one machine, and a peer can be moved.
func (a *App) PeerHome() (string, error) {
	for _, dir := range []string{a.home, a.Getenv("STARLING_HOME")} {
		if dir != "" {
			return filepath.Abs(dir)
		}
	}
	return a.xdg("XDG_DATA_HOME", ".local", "share")
}

// Itself returns this program and the global flags by which it uses the same peer or light client from anywhere.
func (a *App) Itself() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	home, err := a.Home()
	if err != nil {
		return nil, err
	}
	peers, _ := a.Light()
	if len(peers) == 0 && a.Getenv("STARLING_PEER") == "" {
		return []string{self, "--home", home}, nil
	}
	return []string{self, "--home", home, "--peer", strings.Join(peers, ",")}, nil
}

// Cache is the directory of reproducible data: $XDG_CACHE_HOME/starling or ~/.cache/starling. Peers share it.
func (a *App) Cache() (string, error) { return a.xdg("XDG_CACHE_HOME", ".cache") }

// xdg is one of the XDG base directories, or its default below the user's home. Relative ones are ignored, as the
// specification asks.
func (a *App) xdg(variable string, fallback ...string) (string, error) {
	if dir := a.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "starling"), nil
	}
	user := a.Getenv("HOME")
	if user == "" {
		dir, err := os.UserHomeDir()
		if err != nil {
			return "", &Error{Code: ExitUsage, Err: errors.New("no home directory is known"),
				Hint: "set STARLING_HOME, or give --home"}
		}
		user = dir
	}
	return filepath.Join(append(append([]string{user}, fallback...), "starling")...), nil
}

// Client returns a client of the peer of this home directory, or with --peer of the light client, which it starts if
// necessary. It returns api.ErrNoPeer if no peer runs.
func (a *App) Client() (*api.Client, error) {
	if peers, light := a.Light(); light {
		return a.agent(peers)
	}
	home, err := a.Home()
	if err != nil {
		return nil, err
	}
	return api.Dial(home, config.FileAPI)
}

// Known returns the API of the peer, and its network's genesis.
func (a *App) Known() (*api.Client, market.Genesis, error) {
	c, err := a.Client()
	if err != nil {
		return nil, market.Genesis{}, err
	}
	g, err := a.Genesis()
	return c, g, err
}

// Genesis returns the genesis of this home directory's network.
func (a *App) Genesis() (market.Genesis, error) {
	if err := a.Introduced(); err != nil {
		return market.Genesis{}, err
	}
	home, err := a.Home()
	if err != nil {
		return market.Genesis{}, err
	}
	g, err := config.LoadGenesis(home)
	if err != nil {
		code := ExitUsage
		if errors.Is(err, fs.ErrNotExist) {
			code = ExitUnreachable // without it no peer runs here
		}
		return g, &Error{Code: code, Err: err,
			Hint: "set the peer up with `starling init --genesis FILE`, or name another directory with --home"}
	}
	return g, nil
}

// Node requests the state of the running peer or light client.
func (a *App) Node(ctx context.Context) (api.NodeInfo, error) {
	client, err := a.Client()
	if err != nil {
		return api.NodeInfo{}, err
	}
	return api.GetNode.Call(ctx, client, api.None{})
}

// WarnAlone warns if the peer is connected to no other peer, which is why it finds no offers.
func (a *App) WarnAlone(ctx context.Context, c *api.Client) {
	n, err := api.GetNode.Call(ctx, c, api.None{})
	if err != nil || n.Peers > 0 {
		return
	}
	a.Say("warning: this peer is connected to no other, so it finds no offers")
	a.Say("hint: check bootstrap in config.yaml and the peer's log; `starling peer ping ADDRESS` shows why a peer " +
		"cannot be reached")
}

// MaxGenesisFile bounds a genesis file, bytes.
const MaxGenesisFile = 4096

// DefaultDecimals is the number of decimals of prices without a network: the usual number of SPL tokens.
const DefaultDecimals = 6
