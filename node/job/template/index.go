package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/jsonfile"
)

// Limits of an index.
const (
	MaxTemplates = 1000
	MaxIndex     = 512 << 10
)

// FileIndex is the name of an index in the directory that publish writes.
const FileIndex = "index.json"

const indexFormat = "starling/templates/1"

// Index is a list of templates by their digests. The publisher signs the file without signature, for one network.
type Index struct {
	Format    string         `json:"format"`
	Publisher sign.Key       `json:"publisher"`
	Sequence  uint64         `json:"sequence"` // rises with each version
	Templates []Entry        `json:"templates"`
	Signature sign.Signature `json:"signature"`
}

// Entry is a template of an index.
type Entry struct {
	Name   string    `json:"name"`
	Digest sign.Hash `json:"digest"`
	About  string    `json:"about"` // one line
}

// Archive is the name of the file with the template's canonical form, beside the index.
func (e Entry) Archive() string { return e.Digest.String() + ".tar" }

// NewIndex makes an index of valid templates, and signs it.
func NewIndex(d sign.Domain, s sign.Signer, sequence uint64, templates []Template) (Index, error) {
	i := Index{Format: indexFormat, Publisher: s.Key(), Sequence: sequence, Templates: []Entry{}}
	for _, t := range templates {
		if _, err := t.Check(); err != nil {
			return i, fmt.Errorf("template %s: %w", t.Name, err)
		}
		i.Templates = append(i.Templates, Entry{t.Name, t.Digest(), t.About()})
	}
	slices.SortFunc(i.Templates, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	if err := i.check(); err != nil {
		return i, err
	}
	sealed, err := sign.Seal(d, sign.TagTemplates, i.unsigned(), s)
	i.Signature = sealed.Signature
	return i, err
}

// unsigned is the signed payload: the file with a signature of zeros.
func (i Index) unsigned() []byte {
	i.Signature = sign.Signature{}
	return i.Marshal()
}

// Marshal returns the only form of the file.
func (i Index) Marshal() []byte {
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		panic(err) // it has text and numbers only
	}
	return append(b, '\n')
}

// ParseIndex reads an index and verifies its signature for a network. It reads the output of Marshal only.
func ParseIndex(b []byte, d sign.Domain) (Index, error) {
	i, err := jsonfile.Parse(b, MaxIndex, indexFormat, func(i Index) string { return i.Format })
	if err != nil {
		return Index{}, invalid("index: %v", err)
	}
	if err := i.check(); err != nil {
		return Index{}, err
	}
	if !bytes.Equal(i.Marshal(), b) {
		return Index{}, invalid("index: not in its canonical form")
	}
	sealed := sign.Envelope{Key: i.Publisher, Signature: i.Signature, Payload: i.unsigned()}
	if _, err := sealed.Open(d, sign.TagTemplates); err != nil {
		return Index{}, invalid("index: %v for network %s", err, d.Network)
	}
	return i, nil
}

func (i Index) check() error {
	if len(i.Templates) > MaxTemplates {
		return invalid("index: %d templates, at most %d", len(i.Templates), MaxTemplates)
	}
	if i.Sequence == 0 {
		return invalid("index: sequence: got 0, want 1 or more")
	}
	for n, e := range i.Templates {
		if err := CheckName(e.Name); err != nil {
			return err
		}
		if n > 0 && i.Templates[n-1].Name >= e.Name {
			return invalid("index: %s: want each name once, in order", e.Name)
		}
		if len(e.About) > maxAbout || !isText(e.About) || strings.Contains(e.About, "\n") {
			return invalid("index: %s: about: want one line of at most %d bytes", e.Name, maxAbout)
		}
	}
	return nil
}

// Find returns the entry of a template.
func (i Index) Find(name string) (Entry, error) {
	n, ok := slices.BinarySearchFunc(i.Templates, name, func(e Entry, name string) int {
		return strings.Compare(e.Name, name)
	})
	if !ok {
		return Entry{}, fmt.Errorf("template %.40q: not in the index of %s", name, i.Publisher)
	}
	return i.Templates[n], nil
}
