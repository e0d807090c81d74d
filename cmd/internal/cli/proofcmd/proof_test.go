package proofcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/clitest"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api/server"
	"github.com/starling-network/starling/node/api/server/proofs"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/notices"
	"github.com/starling-network/starling/node/proof/prooftest"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// shelf is a peer with a double sale, a fraud and an audit, behind the real API.
type shelf struct {
	server.Access
	home    string
	entries []proof.Entry
	proofs  map[sign.Hash]proof.Proof
	added   []sign.Hash
	watched []notices.Watched
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	s := &shelf{home: t.TempDir(), proofs: map[sign.Hash]proof.Proof{}}
	for i, c := range []proof.Content{
		prooftest.DoubleSale(prooftest.Key("p"), prooftest.Key("a"), prooftest.Key("b"), 0),
		prooftest.Frauds(prooftest.Key("liar"), prooftest.Key("lazy"), prooftest.Window)[1], prooftest.Audit(),
	} {
		e := proof.EntryOf(c)
		e.Own, e.Found = i > 0, time.Now().Add(-time.Hour)
		if c.Kind() != proof.KindAudit {
			e.State = proof.StateTaken
		}
		p, err := proof.New(c)
		if err != nil {
			t.Fatal(err)
		}
		s.entries, s.proofs[e.Hash] = append(s.entries, e), p
	}
	b, err := json.Marshal(prooftest.Genesis())
	if err == nil {
		err = os.WriteFile(filepath.Join(s.home, config.FileGenesis), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	api, err := server.Listen("", filepath.Join(s.home, config.FileAPI), s, proofs.Bind(s), p2ptest.Quiet())
	if err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, api.Run)
	return s
}

// KeyOf implements server.Access: the peer has no API keys.
func (s *shelf) KeyOf(string) (string, bool) { return "", false }

func (s *shelf) Proofs(k proof.Kind) (out []proof.Entry) {
	for _, e := range s.entries {
		if k == "" || e.Kind == k {
			out = append(out, e)
		}
	}
	return out
}

func (s *shelf) Proof(_ context.Context, _ sign.Key, h sign.Hash) (proof.Proof, error) {
	if p, ok := s.proofs[h]; ok {
		return p, nil
	}
	return proof.Proof{}, fmt.Errorf("%w: %s", proof.ErrUnknown, h.Short())
}

func (s *shelf) KeepProof(_ context.Context, f proof.File) (proof.Entry, error) {
	c, err := f.Open()
	if err != nil {
		return proof.Entry{}, err
	}
	s.added = append(s.added, c.Hash())
	return proof.EntryOf(c), nil
}

func (s *shelf) History(context.Context, string) (proof.Proof, error) {
	return proof.New(prooftest.History())
}

func (s *shelf) Watching() []notices.Watched { return s.watched }
func (s *shelf) Watch(_ context.Context, w notices.Watched) error {
	s.watched = append(s.watched, w)
	return nil
}
func (s *shelf) Unwatch(context.Context, notices.Watched) error {
	s.watched = nil
	return nil
}

func (s *shelf) cli(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	var out, errs clitest.Buffer
	a := &cli.App{
		In: strings.NewReader(""), Out: &out, Err: &errs, Commands: []func(*cli.App) *cobra.Command{NewProof},
		Getenv: func(name string) string { return map[string]string{"STARLING_HOME": s.home}[name] },
	}
	code := a.Run(t.Context(), append([]string{"proof"}, args...))
	return clitest.Result{Code: code, Out: out.String(), Err: errs.String()}
}

// The proofs of a peer are listed, shown by the beginning of their hash, exported to files that check, and kept.
func TestKeptProofs(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	sale, fraud := s.entries[0].Hash.String(), s.entries[1].Hash.String()
	s.cli(t, "ls").Want(t, cli.ExitOK, `^HASH +KIND +AGE`, `^`+sale[:16]+` +double-sale +60m +others`,
		`fraud +60m +this peer .* stake taken by this peer$`, ` audit +60m `)
	s.cli(t, "ls", "--kind", "fraud", "-o", "json").Want(t, cli.ExitOK, `"hash": "`+fraud+`"`)
	if out := s.cli(t, "ls", "--kind", "dispute").Out; out != "none\n" {
		t.Errorf("no disputes: %q", out)
	}
	s.cli(t, "ls", "j1", "--kind", "fraud").Want(t, cli.ExitUsage, `--kind is for the list without a job`)
	s.cli(t, "ls", "--kind", "rumour").Want(t, cli.ExitUsage, `want one of`)
	s.cli(t, "show", sale[:8]).Want(t, cli.ExitOK, `sold one unit to two at a time$`, `^stake +stake taken by this peer$`,
		`the network of this peer$`)
	s.cli(t, "show", fraud, "--of", prooftest.Key("x").Key().String()).Want(t, cli.ExitOK, `two answers`)
	s.cli(t, "show", strings.Repeat("0", 64), "--of", prooftest.Key("x").Key().String()).Want(t, cli.ExitUsage,
		`no such proof`, `^hint: .*starling proof ls`)
	s.cli(t, "show", "ab", "--of", prooftest.Key("x").Key().String()).Want(t, cli.ExitUsage, `"ab"`)
	s.cli(t, "show", "0000000000000000").Want(t, cli.ExitUsage, `not found`, `^hint: starling proof ls$`)
	s.cli(t, "show", sale[:8], "--kind", "audit").Want(t, cli.ExitUsage, `not found`)

	dir := t.TempDir()
	double, facts := filepath.Join(dir, "double.json"), filepath.Join(dir, "facts.json")
	s.cli(t, "export", sale, double).Want(t, cli.ExitOK, `^wrote the proof to .*double.json: provider \w+ sold unit`)
	s.cli(t, "export", sale, "-").Want(t, cli.ExitOK, `"format": "starling-proof/1"`)
	s.cli(t, "export", prooftest.Key("provider").Key().String(), facts, "--kind", "history").Want(t, cli.ExitOK,
		`others kept 1 leases`)
	s.cli(t, "check", facts).Want(t, cli.ExitOK, `^chain +not asked`, `PAID`)
	s.cli(t, "check", double, "--keep").Want(t, cli.ExitOK, `^proves `)
	if len(s.added) != 1 || s.added[0].String() != sale {
		t.Errorf("kept are %v", s.added)
	}
}

// Units are watched until the user ends it.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	key, unit := prooftest.Key("p").Key().String(), strings.Repeat("07", 32)
	s.cli(t, "watch", key, unit).Want(t, cli.ExitOK, `^PROVIDER +UNIT$`, `^`+key+` +`+unit+`$`)
	s.cli(t, "watch").Want(t, cli.ExitOK, key)
	s.cli(t, "watch", key, "7").Want(t, cli.ExitUsage, `not a unit id`)
	if out := s.cli(t, "watch", key, unit, "--end").Out; strings.Contains(out, key) {
		t.Errorf("still watched: %s", out)
	}
}
