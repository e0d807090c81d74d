package job

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
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

// Names, labels and variables are of their letters alone, up to their length.
func TestWords(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		is         func(string) bool
		good, evil []string
	}{
		{isName, []string{"a", "9", "a-b", strings.Repeat("a", maxName)}, []string{"", "-a", "a-", "A", "a_b", "a.b", "ä", "a\n", strings.Repeat("a", maxName+1)}},
		{isLabel, []string{"a", "A.b/c_d-e", strings.Repeat("a", 63)}, []string{"", "a b", "ä", "a=b", strings.Repeat("a", 64)}},
		{isVariable, []string{"A", "_", "a1", strings.Repeat("A", 256)}, []string{"", "1A", "A-B", "A=B", "A\x00", "Ä", strings.Repeat("A", 257)}},
		{isText, []string{"", "ä\n世"}, []string{"\x00", "\xff"}},
	} {
		for _, s := range x.good {
			if !x.is(s) {
				t.Errorf("%.20q is refused", s)
			}
		}
		for _, s := range x.evil {
			if x.is(s) {
				t.Errorf("%.20q is accepted", s)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) { // a job without a name gets one from any program
		module := rapid.String().Draw(t, "module")
		if name := nameFrom(module); !isName(name) {
			t.Fatalf("the name of %q is %q", module, name)
		}
	})
}

// An input is parted where its place begins, and a source may have any other colon and comma.
func TestParseInput(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Input{
		"a:/b": {"a", "/b"}, "./x/{rank}.bin:/data": {"./x/{rank}.bin", "/data"}, "c:\\x:/y": {"c:\\x", "/y"}, "a:/b:/c": {"a:/b", "/c"},
		"src=a,b:c,dst=/d": {"a,b:c", "/d"}, "src=a,dst=b,dst=/c": {"a,dst=b", "/c"}, "src=,dst=": {"", ""},
	} {
		if got, err := parseInput(text); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", ":/b", "a:b", "src=a", "src=a:/b", "dst=/a,src=b", "a:/b:ro", "a:/b:rw"} {
		if got, err := parseInput(text); err == nil {
			t.Errorf("%s: got %+v, want a refusal", text, got)
		}
	}
}

// A request for GPUs sets class, units and minimums; the rest of the resources stays.
func TestParseGPUs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Resources{
		"2": {Class: "gpu", Units: 2}, "h100:8": {Class: "gpu/h100", Units: 8},
		"h100:1,cap>=9.0": {Class: "gpu/h100", Units: 1, MinCapability: 90},
	} {
		got, err := parseGPUs(text)
		if err != nil || got.Class != want.Class || got.Units != want.Units || got.MinCapability != want.MinCapability {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
		asked := Resources{Unproven: true, PerUnit: market.Resources{MilliCPU: 7, DiskMiB: 8}}
		if asked.ask(got); !asked.Unproven || asked.PerUnit.MilliCPU != 7 || asked.PerUnit.DiskMiB != 8 || asked.Class != want.Class {
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
	for text, want := range map[string]RestartPolicy{"never": RestartNever, "no": RestartNever, "on-failure": RestartOnFailure, "always": RestartAlways} {
		got, err := asPolicy(text)
		same(text, err, got, want)
	}
	for text, want := range map[string]Verify{"none": VerifyNone, "replicate": VerifyReplicate} {
		got, err := asVerify(text)
		same(text, err, got, want)
	}
	for text, want := range map[string]Probes{"warn": ProbesWarn, "move": ProbesMove, "off": ProbesOff} {
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

// The most that a job can cost is its exact cost rounded up, or an overflow, and more of anything costs no less.
func TestMaxCostProperty(t *testing.T) {
	t.Parallel()
	hour := big.NewInt(int64(time.Hour / time.Millisecond))
	rapid.Check(t, func(t *rapid.T) {
		j := Job{Count: rapid.Uint32().Draw(t, "ranks"), Resources: Resources{Units: rapid.Uint32().Draw(t, "units")},
			Standbys: rapid.Uint32Max(MaxStandbys).Draw(t, "standbys"), Timeouts: Timeouts{Run: time.Duration(rapid.Int64Range(0, int64(MaxRun)).Draw(t, "time"))},
			Payment: Payment{MaxPrice: market.Price(rapid.Uint64().Draw(t, "price"))}}
		exact := new(big.Int).SetUint64(uint64(j.Count)*uint64(j.Resources.Units) + uint64(j.Standbys)*uint64(j.Resources.Units))
		exact.Mul(exact, new(big.Int).SetUint64(uint64(j.Payment.MaxPrice)))
		perHour := exact.IsUint64()
		exact.Mul(exact, big.NewInt(j.Timeouts.Run.Milliseconds()))
		exact.Add(exact, new(big.Int).Sub(hour, big.NewInt(1))).Div(exact, hour)
		got, err := j.MaxCost()
		if fits := perHour && exact.IsUint64(); fits != (err == nil) || err == nil && uint64(got) != exact.Uint64() || err != nil && !errors.Is(err, market.ErrOverflow) {
			t.Fatalf("got %d, %v, want %v", got, err, exact)
		}
		j.Guardians = 3
		if guarded, err2 := j.MaxCost(); err == nil && err2 == nil && (guarded < got || uint64(guarded-got) != uint64(got)/WagePart) {
			t.Fatalf("with guardians %d, without %d", guarded, got)
		}
	})
}

// A budget that was the whole cost stays the whole cost of the changed job; any other stays as it is.
func TestChangesProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := jobs().Draw(t, "job")
		j.Payment.MaxPrice = market.Price(rapid.Uint64Range(1, 1000).Draw(t, "price"))
		cost, err := j.MaxCost()
		if err != nil || cost == 0 {
			return
		}
		whole := rapid.Bool().Draw(t, "whole")
		if j.Payment.Budget = cost; !whole {
			j.Payment.Budget = cost + 1
		}
		count := rapid.Uint32Range(1, 16).Draw(t, "count")
		run := Span(rapid.Int64Range(int64(MinTime), int64(MaxRun)).Draw(t, "time"))
		before := roundTrip(t, j)
		got, err := j.With(Changes{Count: &count, Run: &run})
		if !reflect.DeepEqual(j, before) {
			t.Fatalf("the job was changed: %+v, want %+v", j, before)
		}
		if err != nil {
			return // a cluster of too few, or a cost of nothing
		}
		want, err := got.MaxCost()
		if !whole {
			want = j.Payment.Budget
		}
		if err != nil || got.Count != count || got.Timeouts.Run != time.Duration(run) || got.Payment.Budget != want {
			t.Fatalf("%d ranks for %v with %d, %v, want %d", got.Count, got.Timeouts.Run, got.Payment.Budget, err, want)
		}
		if again, err := j.With(Changes{}); err != nil || !reflect.DeepEqual(again, j) {
			t.Fatalf("without changes: %+v, %v", again, err)
		}
	})
}

// Of fewer ranks fewer inputs are needed; of more, those of the new ranks are missing.
func TestChangesOfBlobs(t *testing.T) {
	t.Parallel()
	j, err := Parse([]byte(fullFile), token)
	if err != nil {
		t.Fatal(err)
	}
	blobs := map[string]Blob{}
	for _, s := range j.Sources() {
		blobs[s] = Blob{CID: "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}
	}
	if j, err = j.WithBlobs(blobs); err != nil {
		t.Fatal(err)
	}
	two, six, none, huge := uint32(2), uint32(6), uint32(0), uint32(math.MaxUint32)
	if got, err := j.With(Changes{Count: &two}); err != nil || len(got.Blobs) != 3 || len(j.Blobs) != 6 {
		t.Errorf("two ranks have %d files, five %d: %v", len(got.Blobs), len(j.Blobs), err)
	}
	if _, err := j.With(Changes{Count: &six}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `shards/5.bin`) {
		t.Errorf("six ranks: %v", err)
	}
	for _, n := range []*uint32{&none, &huge} {
		if _, err := j.With(Changes{Count: n}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d ranks: %v", *n, err)
		}
	}
	price, budget := market.Price(0), market.Amount(0)
	for name, ch := range map[string]Changes{"price": {MaxPrice: &price}, "budget": {Budget: &budget}, "queue": {Queue: new(Span)}, "run": {Run: new(Span)}} {
		if _, err := j.With(ch); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
}

// Guardians that are taken on and given up leave the job as it was, with its budget.
func TestGuardedProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := jobs().Draw(t, "job")
		j.Payment.MaxPrice = market.Price(rapid.Uint64Range(1, 1000).Draw(t, "price"))
		if cost, err := j.MaxCost(); err == nil && rapid.Bool().Draw(t, "whole") {
			j.Payment.Budget = cost
		}
		guarded := j.Guarded(3)
		if guarded.Guardians != 3 || guarded.Standbys != DefaultStandbys || guarded.Payment.Budget < j.Payment.Budget {
			t.Fatalf("%d guardians, %d standbys, budget %d, without %d", guarded.Guardians, guarded.Standbys, guarded.Payment.Budget, j.Payment.Budget)
		}
		if back := guarded.Guarded(0); !reflect.DeepEqual(back, j) {
			cost, _ := guarded.MaxCost()
			if j.Payment.Budget != cost { // by chance the budget was that of the guarded job
				t.Fatalf("got %+v back for %+v", back, j)
			}
		}
	})
}

// Relative paths are taken from a directory once; absolute ones and content ids stay; the job itself is not changed.
func TestInProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := jobs().Draw(t, "job")
		before := roundTrip(t, j)
		in := j.In("/jobs")
		if !reflect.DeepEqual(j, before) {
			t.Fatalf("the job was changed: %+v, want %+v", j, before)
		}
		for _, s := range in.Sources() {
			if !strings.HasPrefix(s, "/jobs/") {
				t.Fatalf("source %q", s)
			}
		}
		for i, s := range in.Secrets {
			if was := j.Secrets[i].From; strings.HasPrefix(was, FromEnv) && s.From != was || strings.HasPrefix(was, FromFile) && s.From != FromFile+"/jobs/"+was[len(FromFile):] {
				t.Fatalf("%q became %q", was, s.From)
			}
		}
		if again := in.In("/elsewhere"); !slices.Equal(again.Sources(), in.Sources()) || !reflect.DeepEqual(again.Secrets, in.Secrets) {
			t.Fatalf("moved twice: %v", again.Sources())
		}
	})
	j := Job{Module: "cid:bafy", Inputs: []Input{{Source: "/abs"}, {Source: "../up"}}}.In("/a/b")
	if j.Module != "cid:bafy" || j.Inputs[0].Source != "/abs" || j.Inputs[1].Source != "/a/up" {
		t.Errorf("got %+v", j)
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
		if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "--") {
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
	for i := range maxProblems + 5 {
		ps = append(ps, Problem{Field: fmt.Sprintf("f%02d", i), Line: 100 - i, Column: 1, Text: "bad", Kind: ErrInvalid})
	}
	ps = append(ps, Problem{Field: "late", Line: 76, Column: 0, Text: "later", Kind: ErrNotSupported})
	err := ps.err()
	lines := strings.Split(err.Error(), "\n")
	if !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrNotSupported) || len(lines) != maxProblems+1 || lines[maxProblems] != "and 6 more" ||
		lines[0] != "76:0: late: later" || lines[1] != "76:1: f24: bad" {
		t.Errorf("got\n%v", err)
	}
	if (problems{}).err() != nil {
		t.Error("no problem is an error")
	}
	if got := (Problem{Field: "--count", Text: "want a number"}).String(); got != "--count: want a number" {
		t.Errorf("got %q", got)
	}
}

// A webhook without events is notified of all of them.
func TestWebhookWants(t *testing.T) {
	t.Parallel()
	for _, e := range Events {
		if !(Webhook{}).Wants(e) || (Webhook{Events: []string{"failed"}}).Wants(e) != (e == "failed") {
			t.Errorf("event %s", e)
		}
	}
	for url, ok := range map[string]bool{
		"https://example.org/x": true, "http://[::1]:8080/": true, "ftp://example.org": false, "https://": false, "/x": false, "https://u:p@example.org": false,
		"https://example.org/#f": false, "https://example.org/" + strings.Repeat("x", maxURL): false, "https://exa mple.org": false, "https://a\x00": false, "": false,
	} {
		var ps problems
		if checkWebhooks(Job{Webhooks: []Webhook{{URL: url}}}, &ps); (len(ps) == 0) != ok {
			t.Errorf("%.40q: %v", url, ps.err())
		}
	}
	var ps problems
	checkWebhooks(Job{Webhooks: []Webhook{{URL: "https://a", Events: []string{"failed", "failed", "ended"}}}}, &ps)
	if len(ps) != 2 || ps[0].Field != "spec.webhooks[0].events[1]" || ps[1].Field != "spec.webhooks[0].events[2]" {
		t.Errorf("got %v", ps.err())
	}
	ps = nil
	if checkWebhooks(Job{Webhooks: make([]Webhook, MaxWebhooks+1)}, &ps); len(ps) != 1 {
		t.Errorf("got %v", ps.err())
	}
}
