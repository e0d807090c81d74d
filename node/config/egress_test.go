package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/p2p/overlay/egress"
)

// What the section egress says.
func TestEgressConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]egress.Mode{
		"":                         egress.ModeNone,
		"egress: {mode: internet}": egress.ModeInternet,
		"egress: {mode: none}":     egress.ModeNone,
		"egress: {mode: allowlist, allow: [\"pypi.org:443\", \"*.a.org\", 93.184.216.0/24]}": egress.ModeAllowlist,
	} {
		c, err := loadText(t, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if p, _, err := c.Egress.Policy(); err != nil || p.Mode != want {
			t.Errorf("%q: mode %q, %v, want %q", text, p.Mode, err, want)
		}
	}
	for text, want := range map[string]string{
		"egress: {mode: all}":                                     "want none, allowlist or internet",
		"docker: {internet: true}":                                "unknown field",
		"egress: {mode: allowlist}":                               "no rules",
		"egress: {mode: internet, allow: [pypi.org]}":             "without effect in mode",
		"egress: {mode: allowlist, allow: [192.168.1.0/24]}":      "a private network, which no rule opens",
		"egress: {mode: allowlist, allow: [\"http://pypi.org\"]}": "name the host",
		"egress: {mode: internet, limits: {flows: -1}}":           "want none below 0",
		"egress: {mode: internet, limits: {idle: -1s}}":           "want none below 0",
		"egress: {mode: internet, limits: {mbitPerSecond: .nan}}": "want none below 0",
		"egress: {modes: internet}":                               "unknown field",
	} {
		if _, err := loadText(t, text); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
	c, err := loadText(t, "egress: {mode: internet, limits: {flows: 10, newPerSecond: 2.5, mbitPerSecond: 8, namesPerSecond: 3, idle: 5m}}")
	if err != nil {
		t.Fatal(err)
	}
	_, l, err := c.Egress.Policy()
	if want := (egress.Limits{Flows: 10, NewFlows: 2.5, BytesPerSec: 1e6, Queries: 3, IdleTCP: 5 * time.Minute}); err != nil || l != want {
		t.Errorf("limits %+v, %v, want %+v", l, err, want)
	}
}

func loadText(t *testing.T, text string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), FileConfig)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}
