package lease_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/lease"
)

// The journal's form of a record can be read by a person. A form that this package would not write is refused.
func TestRecordForm(t *testing.T) {
	t.Parallel()
	r := newLine(t).first
	form, err := r.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"state":"active"`, `"id":"` + r.ID.String() + `"`, `"lease":"` + r.Lease.String() + `"`} {
		if !strings.Contains(string(form), want) {
			t.Errorf("no %s in %s", want, form)
		}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(form, &fields); err != nil {
		t.Fatal(err)
	}
	read := func(change func(m map[string]json.RawMessage)) error {
		m := maps.Clone(fields)
		change(m)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		_, err = lease.UnmarshalRecord(b)
		return err
	}
	if err := read(func(map[string]json.RawMessage) {}); err != nil {
		t.Errorf("fields in another order: %v", err)
	}
	other := json.RawMessage(`"` + strings.Repeat("ab", 32) + `"`)
	for name, change := range map[string]func(m map[string]json.RawMessage){
		"unknown field":     func(m map[string]json.RawMessage) { m["floor"] = json.RawMessage("1") },
		"unknown state":     func(m map[string]json.RawMessage) { m["state"] = json.RawMessage(`"sold"`) },
		"state as a number": func(m map[string]json.RawMessage) { m["state"] = json.RawMessage("3") },
		"another lease":     func(m map[string]json.RawMessage) { m["lease"] = other },
		"lease without id":  func(m map[string]json.RawMessage) { delete(m, "lease") },
		"id without lease":  func(m map[string]json.RawMessage) { delete(m, "core") },
		"no keys":           func(m map[string]json.RawMessage) { delete(m, "keys") },
		"no units":          func(m map[string]json.RawMessage) { delete(m, "units") },
	} {
		if err := read(change); !errors.Is(err, lease.ErrRecord) {
			t.Errorf("%s: got %v, want %v", name, err, lease.ErrRecord)
		}
	}
	for _, bad := range []string{"", "{}", string(form) + "{}", string(form) + strings.Repeat(" ", lease.MaxRecordSize)} {
		if _, err := lease.UnmarshalRecord([]byte(bad)); !errors.Is(err, lease.ErrRecord) {
			t.Errorf("%.40q: got %v, want %v", bad, err, lease.ErrRecord)
		}
	}
}
