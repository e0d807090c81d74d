package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestDecodeReplyRefuses(t *testing.T) {
	t.Parallel()
	device := func(change func(*Device)) string {
		d := sample(0)
		change(&d)
		b, err := json.Marshal(reply{Version: HelperVersion, Inventory: &Inventory{Devices: []Device{d}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	many := make([]string, MaxDevices+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"GPU-%d":{}`, i)
	}
	for line, want := range map[string]string{
		``:              "not a reply",
		`{"version":1`:  "not a reply",
		`[]`:            "not a reply",
		`{"version":0}`: "got 0",
		`{"version":1,"inventory":{"devices":[` + strings.Repeat(`{},`, MaxDevices) + `{}]}}`: "257 devices",
		`{"version":1,"health":{` + strings.Join(many, ",") + `}}`:                            "health of 257",
		`{"version":1,"health":{"\n":{}}}`:                                                    "no UUID",
		`{"version":1,"inventory":{"driver":"\u001b[2J"}}`:                                    "does not print",
		`{"version":1,"inventory":{"problems":["` + strings.Repeat(`","`, 40) + `"]}}`:        "problems",
		device(func(d *Device) { d.Model = "H100\x1b[2J" }):                                   "does not print",
		device(func(d *Device) { d.UUID = strings.Repeat("G", 129) }):                         "does not print",
		device(func(d *Device) { d.MIG = &MIG{Profile: "\n"} }):                               "does not print",
		device(func(d *Device) { d.Index = -1 }):                                              "index -1",
		device(func(d *Device) { d.Index = 1 << 40 }):                                         "index",
		device(func(d *Device) { d.Health.Throttle = make([]string, 17) }):                    "throttling",
	} {
		if p, err := decodeReply([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %+v, %v; want %q", line, p, err, want)
		}
	}
}

// What is the peer's to say is not taken from the helper.
func TestDecodeReplyBelievesOnlyTheDriver(t *testing.T) {
	t.Parallel()
	p, err := decodeReply([]byte(`{"version":1,"id":4,"inventory":{"devices":[
		{"vendor":"amd","refused":"no","simulated":true,"pci":"00000000:0A:00.0"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Inventory.Devices[0]; d.Vendor != NVIDIA || d.Refused != "" || d.Simulated || d.PCI != "0000:0a:00.0" {
		t.Errorf("%+v", d)
	}
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	in := strings.NewReader(`nonsense
{"version":9,"id":2,"op":"inventory"}
{"version":1,"id":3,"op":"reset"}
{"version":1,"id":4,"op":"inventory"}
`)
	if err := Serve(in, &out, func() (Backend, error) { return fixed{sample(0)}, nil }); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{"invalid character", "version 9", "unknown operation", sample(0).UUID} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("line %d of %q, want %q", i, lines, want)
		}
	}
	for _, bad := range []string{strings.Repeat("x", maxRequest+1), `{"version":1`} {
		if err := Serve(strings.NewReader(bad), &out, nil); err == nil {
			t.Errorf("%.20s: no error", bad)
		}
	}
}

func FuzzReply(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"id":1}`,
		`{"version":1,"id":1,"error":{"kind":"nvml","text":"x"}}`,
		`{"version":1,"id":1,"health":{"` + uuidA + `":{"temperatureC":30,"ecc":{},"xid":{"count":1,"last":79,"fault":79}}}}`,
		`{"version":1,"inventory":{"problems":["a\u0000b"],"devices":[{"uuid":"` + uuidM + `","pci":"00000000:0A:00.0","mig":{"parent":"` + uuidA + `"}}]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		p, err := decodeReply(line)
		if err != nil {
			return
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeReply(b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		b2, err := json.Marshal(again)
		if err != nil || !bytes.Equal(b, b2) {
			t.Fatalf("%s is read as %s, %v", b, b2, err)
		}
		if p.Inventory != nil {
			compare(p.Inventory.Devices, []kernelGPU{{PCI: "0000:0a:00.0"}}, true, "/nowhere")
			judge(p.Inventory.Devices)
			for _, d := range p.Inventory.Devices {
				if err := d.Class().Check(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"version":1,"id":1,"op":"inventory"}`))
	f.Add([]byte(`{"version":1,"id":1,"op":"health","uuids":["` + uuidA + `"]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		q, err := decodeRequest(line)
		if err != nil {
			return
		}
		b, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeRequest(b)
		if err != nil || len(again.UUIDs) != len(q.UUIDs) || len(q.UUIDs) > 0 && !reflect.DeepEqual(again, q) {
			t.Fatalf("%+v is read as %+v, %v", q, again, err)
		}
	})
}
