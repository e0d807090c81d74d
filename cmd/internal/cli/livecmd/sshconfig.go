package livecmd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/wholefile"
)

const (
	sshDir      = "ssh" // in the home directory, with the two files below
	fileHostKey = "host_key"
	fileKnown   = "known_hosts"
	// hostAlias is the name of all jobs in fileKnown: one server serves them all.
	hostAlias = "starling"

	// included is the file of entries below ~/.ssh, and includeLine the line of ~/.ssh/config that reads it.
	included    = "config.d/starling"
	includeLine = "Include " + included
)

// hostKey returns the host key of a home directory. It makes the key at first use, and the known_hosts file with it.
func hostKey(home string) (ssh.Signer, error) {
	key, err := loadHostKey(filepath.Join(home, sshDir))
	if err != nil {
		return nil, fmt.Errorf("host key for ssh: %w", err)
	}
	return key, nil
}

func loadHostKey(dir string) (ssh.Signer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fileHostKey)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeHostKey(path); err == nil {
			b, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	known := filepath.Join(dir, fileKnown)
	line := append([]byte(hostAlias+" "), ssh.MarshalAuthorizedKey(key.PublicKey())...)
	if b, err := os.ReadFile(known); err == nil && bytes.Equal(b, line) {
		return key, nil
	}
	return key, wholefile.Write(known, line, 0o600)
}

// makeHostKey makes a key, unless another process makes one at the same time.
func makeHostKey(path string) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "starling")
	if err != nil {
		return err
	}
	tmp, err := written(path, pem.EncodeToMemory(block))
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	if err := os.Link(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// written writes a temporary file beside path.
func written(path string, b []byte) (tmp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}

// option is one option of ssh.
type option struct{ name, value string }

// sshOptions are the options by which ssh reaches a rank.
func sshOptions(a *cli.App, id string, rank int) ([]option, error) {
	self, err := a.Itself()
	if err != nil {
		return nil, err
	}
	home, err := a.Home()
	if err != nil {
		return nil, err
	}
	if _, err := hostKey(home); err != nil {
		return nil, err
	}
	var proxy []string
	for _, arg := range append(self, "ssh", "--stdio", fmt.Sprintf("%s/%d", id, rank)) {
		proxy = append(proxy, shellWord(strings.ReplaceAll(arg, "%", "%%")))
	}
	known := strings.ReplaceAll(filepath.Join(home, sshDir, fileKnown), "%", "%%")
	return []option{
		{"ProxyCommand", strings.Join(proxy, " ")},
		{"HostKeyAlias", hostAlias},
		{"UserKnownHostsFile", `"` + known + `"`},
		{"StrictHostKeyChecking", "yes"},
	}, nil
}

// shellWord quotes an argument for a shell, if it needs that.
func shellWord(arg string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("/._-:,=%+@", r)
	}
	if arg != "" && strings.IndexFunc(arg, func(r rune) bool { return !plain(r) }) < 0 {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// entries are the entries of the target's ranks for ~/.ssh/config.
func entries(a *cli.App, t target) (string, error) {
	var b strings.Builder
	for rank := range t.job.Ranks {
		if t.only && rank != t.rank {
			continue
		}
		options, err := sshOptions(a, t.job.ID, rank)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "Host %s\n", t.host(rank))
		for _, o := range options {
			fmt.Fprintf(&b, "  %s %s\n", o.name, o.value)
		}
	}
	return b.String(), nil
}

// configSSH prints the entries of the target, or keeps them in the file of entries.
func configSSH(a *cli.App, ctx context.Context, client *api.Client, t target, write bool) error {
	text, err := entries(a, t)
	if err != nil {
		return err
	}
	if !write {
		_, err := fmt.Fprint(a.Out, text)
		return err
	}
	dir := a.Getenv("HOME")
	if dir == "" {
		if dir, err = os.UserHomeDir(); err != nil {
			return err
		}
	}
	dir = filepath.Join(dir, ".ssh")
	home, err := a.Home()
	if err != nil {
		return err
	}
	over := func(block string) bool {
		return strings.Contains(block, filepath.Join(home, sshDir, fileKnown)) && ended(ctx, client, block)
	}
	path := filepath.Join(dir, included)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), keepEntries(path, text, over),
		keepInclude(filepath.Join(dir, "config"))); err != nil {
		return err
	}
	a.Say("%s has the entry; connect with `ssh %s`", path, t.host(t.rank))
	return nil
}

// ended reports whether the job of an entry of this peer is over or forgotten.
func ended(ctx context.Context, client *api.Client, block string) bool {
	_, after, _ := strings.Cut(block, " ssh --stdio ")
	id, _, found := strings.Cut(after, "/")
	if !found {
		return false
	}
	j, err := api.GetJob.Call(ctx, client, api.ByID{ID: id})
	if refused, ok := errors.AsType[*api.Error](err); ok {
		return refused.Status == http.StatusNotFound
	}
	_, over := j.Result()
	return err == nil && over
}

// keepEntries adds entries to a file, and removes earlier ones of the same hosts and those of ended jobs.
func keepEntries(path, text string, over func(block string) bool) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh := blocks(text)
	kept := ""
	for _, b := range blocks(string(old)) {
		replaced := false
		for _, f := range fresh {
			replaced = replaced || firstLine(f) == firstLine(b)
		}
		if !replaced && !over(b) {
			kept += b
		}
	}
	return wholefile.Write(path, []byte(kept+text), 0o600)
}

// blocks splits a file of entries before each Host line.
func blocks(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "Host ") || len(all) == 0 {
			all = append(all, "")
		}
		all[len(all)-1] += line
	}
	return all
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line)
}

// keepInclude has ssh's configuration include the entries: at its beginning, since a line after a Host line is of that
// host alone.
func keepInclude(path string) error {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(old)) {
		line = strings.TrimSpace(line)
		if strings.EqualFold(line, includeLine) {
			return nil
		}
		if strings.HasPrefix(line, "Host ") || strings.HasPrefix(line, "Match ") {
			break
		}
	}
	return wholefile.Write(path, append([]byte(includeLine+"\n\n"), old...), 0o600)
}
