package program_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain/program"
)

// TestSecurityText reads the program's security.txt as explorers do: between the marks, names and values with a zero after each, each name
// known and once, and those that must be there.
func TestSecurityText(t *testing.T) {
	t.Parallel()
	_, rest, begins := bytes.Cut(program.ELF, []byte("=======BEGIN SECURITY.TXT V1=======\x00"))
	text, rest, ends := bytes.Cut(rest, []byte("=======END SECURITY.TXT V1=======\x00"))
	if !begins || !ends || bytes.Contains(rest, []byte("SECURITY.TXT V1")) {
		t.Fatal("the program has no security.txt, or two")
	}
	parts := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if len(parts)%2 != 0 {
		t.Fatalf("%d names and values", len(parts))
	}
	known := []string{"name", "project_url", "contacts", "policy", "preferred_languages", "source_code", "source_release",
		"source_revision", "encryption",
		"auditors", "acknowledgements", "expiry"}
	said := map[string]string{}
	for pair := range slices.Chunk(parts, 2) {
		if !slices.Contains(known, pair[0]) || said[pair[0]] != "" || pair[1] == "" {
			t.Errorf("%q is unknown, said twice, or empty", pair)
		}
		said[pair[0]] = pair[1]
	}
	for _, name := range known[:4] {
		if said[name] == "" {
			t.Errorf("no %s", name)
		}
	}
	for contact := range strings.SplitSeq(said["contacts"], ",") {
		if kind, where, ok := strings.Cut(contact, ":"); !ok || where == "" || !slices.Contains([]string{"email", "discord", "telegram",
			"twitter", "link", "other"}, kind) {
			t.Errorf("contact %q", contact)
		}
	}
}
