package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/node/api"
)

// Home is the directory of the peer, or of the light client, that the command is for.
func (a *App) Home() (string, error) {
	if _, light := a.light(); light {
		return a.ClientHome()
	}
	return a.peerHome()
}

// ClientHome is the light client's directory: --home, or "client" in the peer's.
func (a *App) ClientHome() (string, error) {
	if a.home != "" {
		return filepath.Abs(a.home)
	}
	home, err := a.peerHome()
	return filepath.Join(home, "client"), err
}

// peerHome is the peer's directory: --home, $STARLING_HOME, $XDG_DATA_HOME/starling or ~/.local/share/starling, the
// first that is set. One directory holds a whole peer, so that several can live on one machine and one can be moved.
func (a *App) peerHome() (string, error) {
	for _, dir := range []string{a.home, a.Getenv("STARLING_HOME")} {
		if dir != "" {
			return filepath.Abs(dir)
		}
	}
	return a.xdg("XDG_DATA_HOME", ".local", "share")
}

// Cache is the directory of data that can be made again: $XDG_CACHE_HOME/starling or ~/.cache/starling. Peers share it.
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
			return "", &Error{Code: ExitUsage, Err: errors.New("no home directory is known"), Hint: "set STARLING_HOME, or give --home"}
		}
		user = dir
	}
	return filepath.Join(append(append([]string{user}, fallback...), "starling")...), nil
}

// Client talks to the peer that runs on this home directory, or with --peer to the light client, which is started when
// it does not run. The error is api.ErrNoPeer where no peer runs.
func (a *App) Client() (*api.Client, error) {
	if peers, light := a.light(); light {
		return a.agent(peers)
	}
	home, err := a.Home()
	if err != nil {
		return nil, err
	}
	return api.Dial(home, node.FileAPI)
}

// readFile reads a file of at most so many bytes.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), most)
	}
	return os.ReadFile(path)
}
