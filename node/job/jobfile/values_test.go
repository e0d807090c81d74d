package jobfile

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/job"
)

// Sizes are whole MiB, exactly, in each unit and with decimals; nothing wraps around 32 bits.
func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint32{
		"512Mi": 512, "1Gi": 1024, "1GiB": 1024, "1.5Gi": 1536, "0.25Gi": 256, "2Ti": 2 << 20, "0Mi": 0, "0.125Gi": 128,
		"4294967295Mi": math.MaxUint32, "4095.999Ti": 0, "1.001Gi": 0,
	} {
		got, err := parseMiB(text)
		if want == 0 && text != "0Mi" {
			if err == nil {
				t.Errorf("%s is %d MiB, want a refusal", text, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s is %d MiB, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "Mi", "512", "512M", "512MB", "512mi", "-1Mi", "1 Gi", "1e3Mi", "0.5Mi", "1.0001Gi", "4294967296Mi",
		"4096Ti", "99999999999999999999Ti", "1Gi2", "1..5Gi", "1GiBB", "0x10Mi", strings.Repeat("9", 4000) + "Mi"} {
		if got, err := parseMiB(text); err == nil || len(err.Error()) > 150 {
			t.Errorf("%.30q is %d MiB, %.150v, want a short refusal", text, got, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		mib := rapid.Uint32().Draw(t, "MiB")
		if got, err := parseMiB(fmt.Sprintf("%dMi", mib)); err != nil || got != mib {
			t.Fatalf("%d MiB read as %d, %v", mib, got, err)
		}
		text := market.Decimal(uint64(mib)*1000/1024, 3) + "Gi" // rounded down: the same size or a refusal
		if got, err := parseMiB(text); err == nil && got != mib && uint64(mib)*1000%1024 == 0 {
			t.Fatalf("%s read as %d MiB, want %d", text, got, mib)
		}
	})
}

// Processors are thousandths, however they are written, and counts are whole.
func TestCounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint32{"2": 2000, "0.5": 500, "500m": 500, "0.001": 1, "4294967295m": math.MaxUint32, "4294967.295": math.MaxUint32, "0": 0} {
		if got, err := parseCPU(text); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "m", "-1", "0.0001", "4294967296m", "4294967.296", "1.5m", "1 m", "two", "+1", "1e3", "∞"} {
		if got, err := parseCPU(text); err == nil {
			t.Errorf("%q is %d thousandths, want a refusal", text, got)
		}
		if got, err := parseCount(text); err == nil && text != "+1" {
			t.Errorf("%q is the count %d, want a refusal", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint32().Draw(t, "n")
		milli, err1 := parseCPU(fmt.Sprintf("%dm", n))
		whole, err2 := parseCPU(market.Decimal(uint64(n), 3))
		count, err3 := parseCount(fmt.Sprint(n))
		if errors.Join(err1, err2, err3) != nil || milli != n || whole != n || count != n {
			t.Fatalf("%d read as %d, %d and %d: %v", n, milli, whole, count, errors.Join(err1, err2, err3))
		}
	})
}

// An input is parted where its place begins, and a source may have any other colon and comma.
func TestParseInput(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]job.Input{
		"a:/b": {Source: "a", Path: "/b"}, "./x/{rank}.bin:/data": {Source: "./x/{rank}.bin", Path: "/data"}, "c:\\x:/y": {Source: "c:\\x", Path: "/y"}, "a:/b:/c": {Source: "a:/b", Path: "/c"},
		"src=a,b:c,dst=/d": {Source: "a,b:c", Path: "/d"}, "src=a,dst=b,dst=/c": {Source: "a,dst=b", Path: "/c"}, "src=,dst=": {Source: "", Path: ""},
		"https://h/w.bin#sha256=ab:/data": {Source: "https://h/w.bin#sha256=ab", Path: "/data"}, "https://h:8443/w:/d": {Source: "https://h:8443/w", Path: "/d"},
		"file:a:/b": {Source: "a", Path: "/b"}, "file:///a:/b": {Source: "/a", Path: "/b"}, "src=file:a,dst=/b": {Source: "a", Path: "/b"},
	} {
		if got, err := parseInput(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", ":/b", "a:b", "src=a", "src=a:/b", "dst=/a,src=b", "a:/b:ro", "a:/b:rw", "https://h/w.bin"} {
		if got, err := parseInput(text); err == nil {
			t.Errorf("%s: got %+v, want a refusal", text, got)
		}
	}
}

// A request for GPUs sets class, units and minimums; the rest of the resources stays.
func TestParseGPUs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]job.Resources{
		"2": {Class: "gpu", Units: 2}, "h100:8": {Class: "gpu/h100", Units: 8},
		"h100:1,cap>=9.0": {Class: "gpu/h100", Units: 1, MinCapability: 90},
	} {
		got, err := parseGPUs(text)
		if err != nil || got.Class != want.Class || got.Units != want.Units || got.MinCapability != want.MinCapability {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
		asked := job.Resources{Unproven: true, PerUnit: market.Resources{MilliCPU: 7, DiskMiB: 8}}
		if ask(&asked, got); !asked.Unproven || asked.PerUnit.MilliCPU != 7 || asked.PerUnit.DiskMiB != 8 || asked.Class != want.Class {
			t.Errorf("%s: %+v", text, asked)
		}
	}
	for _, text := range []string{"", "0", "-1", "all", "h100:", "h100:x", "device=0", "vram>=", "cap>=nine", "h100,h100", "99999999999"} {
		if got, err := parseGPUs(text); err == nil {
			t.Errorf("%q: got %+v, want a refusal", text, got)
		}
	}
}

// The words of the format are read as their values, and nothing is taken for one that is like it.
func TestEnumerations(t *testing.T) {
	t.Parallel()
	same := func(name string, err error, got, want any) {
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
	for text, want := range map[string]job.RestartPolicy{"never": job.RestartNever, "no": job.RestartNever, "on-failure": job.RestartOnFailure, "always": job.RestartAlways} {
		got, err := asPolicy(text)
		same(text, err, got, want)
	}
	for text, want := range map[string]job.Verify{"none": job.VerifyNone, "replicate": job.VerifyReplicate} {
		got, err := asVerify(text)
		same(text, err, got, want)
	}
	for text, want := range map[string]job.Probes{"warn": job.ProbesWarn, "move": job.ProbesMove, "off": job.ProbesOff} {
		got, err := asProbes(text)
		same(text, err, got, want)
	}
	for text, want := range map[string]bool{"true": true, "false": false} {
		got, err := parseTruth(text)
		same(text, err, got, want)
	}
	for _, text := range []string{"", "Never", "yes", "ALWAYS", "1", " warn", "host", strings.Repeat("x", 3000)} {
		_, err1 := asPolicy(text)
		_, err2 := asVerify(text)
		_, err3 := asProbes(text)
		_, err4 := parseTruth(text)
		_, err5 := asNetwork(text)
		for i, err := range []error{err1, err2, err3, err4, err5} {
			if err == nil || len(err.Error()) > 300 {
				t.Errorf("%.20q of %d: %.300v, want a short refusal", text, i, err)
			}
		}
	}
	for n, ok := range map[uint32]bool{0: false, 1: true, 65535: true, 65536: false, math.MaxUint32: false} {
		if p, err := asPort(n); (err == nil) != ok || ok && uint32(p) != n {
			t.Errorf("port %d: %d, %v", n, p, err)
		}
	}
}

// A secret in the place of its source is in no error, for each flag.
func TestFlagsKeepSecrets(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse-battery"
	for name, f := range map[string]Flags{
		"no name": {Secrets: []string{secret}}, "as the value": {Secrets: []string{"a=" + secret}}, "as a variable": {SecretEnv: []string{"A=" + secret}},
		"another scheme": {Secrets: []string{"a=vault:" + secret}}, "lines": {Secrets: []string{"a=file:" + secret + "\nx"}},
		"registry": {RegistryAuth: secret}, "password": {RegistryAuth: "ada=" + secret},
	} {
		f.Module, f.MaxPrice = "app.wasm", "1"
		if strings.Contains(name, "r") && f.RegistryAuth != "" {
			f.Module = "acme/x@sha256:" + strings.Repeat("0a", 32)
		}
		_, err := f.Job(token)
		if !errors.Is(err, job.ErrInvalid) || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "--") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every problem names the flag of its field, at any depth.
func TestFlagFor(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"spec.inputs[3].dst": "--input", "spec.inputs": "--input", "spec.env.STARLING_X": "--env", "spec.secrets[0].from": "--secret",
		"spec.health.http.path": "--health-http", "spec.health": "--health-cmd", "spec.timeouts.run": "--timeout", "blobs": "blobs", "": "", "spec.rounds.count": "spec.rounds.count",
	} {
		if got := flagFor(field); got != want {
			t.Errorf("%s is given by %s, want %s", field, got, want)
		}
	}
}

// Problems come in the order of the file, with both kinds and at most so many lines.
func TestErrorOrder(t *testing.T) {
	t.Parallel()
	var ps problems
	for i := range 20 + 5 {
		ps = append(ps, job.Problem{Field: fmt.Sprintf("f%02d", i), Line: 100 - i, Column: 1, Text: "bad", Kind: job.ErrInvalid})
	}
	ps = append(ps, job.Problem{Field: "late", Line: 76, Column: 0, Text: "later", Kind: job.ErrNotSupported})
	err := ps.err()
	lines := strings.Split(err.Error(), "\n")
	if !errors.Is(err, job.ErrInvalid) || !errors.Is(err, job.ErrNotSupported) || len(lines) != 20+1 || lines[20] != "and 6 more" ||
		lines[0] != "76:0: late: later" || lines[1] != "76:1: f24: bad" {
		t.Errorf("got\n%v", err)
	}
	if (problems{}).err() != nil {
		t.Error("no problem is an error")
	}
	if got := (job.Problem{Field: "--count", Text: "want a number"}).String(); got != "--count: want a number" {
		t.Errorf("got %q", got)
	}
}
