package guard

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func fuzz[T any](f *testing.F, decode func([]byte) (T, error), seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decode(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		w, err := decode(again)
		if err != nil {
			t.Fatalf("%s, encoded anew: %v", again, err)
		}
		once, _ := json.Marshal(v)
		twice, _ := json.Marshal(w)
		if !reflect.DeepEqual(once, twice) {
			t.Errorf("%s, then %s", once, twice)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	fuzz(f, DecodeRequest, `{"op":"run"}`, `{"op":"kill","reason":"timeout"}`, `{"op":"dial","id":7,"port":80}`, `{"op":"size","id":7,"rows":24,"cols":80}`, `{"op":"x"}`)
}

func FuzzDecodeAnswer(f *testing.F) {
	fuzz(f, DecodeAnswer, `{"id":0,"started":"2020-01-02T03:04:05.6Z"}`, `{"id":3,"ended":true,"code":137}`, `{"id":1,"error":"no"}`, `{"id":0,"token":"t"}`, `{"id":1,"code":-1}`)
}

func FuzzDecodeOrder(f *testing.F) {
	fuzz(f, DecodeOrder, `{"command":{"argv":["/a","b"],"env":["A=1"],"dir":"/"},"log_bytes":1,"wall_time":2,"grace":3,"writable":["/out"],"disk_bytes":4,"secrets":{"k":"AAE="},"volume":{"blocks":1,"files":2},"token":"t"}`, `{}`)
}

func FuzzDecodeCommand(f *testing.F) {
	fuzz(f, DecodeCommand, `{"argv":["sh"],"env":null,"dir":"/","tty":true,"rows":24,"cols":80}`, `{"argv":[""]}`)
}

func FuzzDecodeNetRequest(f *testing.F) {
	fuzz(f, DecodeNetRequest, `{"op":"make","address":"10.77.0.2","bits":16,"mtu":1420,"grace":1,"token":"t"}`, `{"op":"make","address":"::1","bits":200}`, `{"op":"mtu","id":1,"mtu":1280}`,
		`{"op":"tun","id":4294967295}`, `{"op":"adopt"}`, `{"op":"end"}`, `{"op":"x"}`)
}

func FuzzDecodeReport(f *testing.F) {
	fuzz(f, DecodeReport, `{"code":137,"reason":"oom","started":"2020-01-02T03:04:05Z","ended":"2020-01-02T03:04:06Z","cpu_millis":5,"memory_mib":6}`, `{"code":1}`)
}

// Every rule of a message refuses what breaks it, with a message that names the object.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const order = `{"command":{"argv":["a"],"env":null,"dir":"/"},"log_bytes":1,"wall_time":2,"grace":3,"writable":null,"disk_bytes":4,"token":"t"}`
	const report = `{"code":1,"reason":"oom","started":"2020-01-02T03:04:05Z","ended":"2020-01-02T03:04:06Z","cpu_millis":5,"memory_mib":6}`
	const network = `{"op":"make","address":"10.77.0.2","bits":16,"mtu":1420,"grace":1,"token":"t"}`
	request := func(b []byte) error { _, err := DecodeRequest(b); return err }
	answer := func(b []byte) error { _, err := DecodeAnswer(b); return err }
	orders := func(b []byte) error { _, err := DecodeOrder(b); return err }
	commands := func(b []byte) error { _, err := DecodeCommand(b); return err }
	reports := func(b []byte) error { _, err := DecodeReport(b); return err }
	networks := func(b []byte) error { _, err := DecodeNetRequest(b); return err }
	for _, test := range []struct {
		decode         func([]byte) error
		good, old, new string
		want           string
	}{
		{request, `{"op":"kill","reason":"oom","id":1,"port":65535}`, "kill", "killed", `unknown operation "killed"`},
		{request, `{"op":"kill","reason":"oom"}`, "oom", "boredom", `unknown reason "boredom"`},
		{request, `{"op":"dial","port":65535}`, "65535", "65536", "decoding request"},
		{request, `{"op":"dial","id":4294967295}`, "4294967295", "4294967296", "decoding request"},
		{request, `{"op":"dial","port":1}`, `"port"`, `"ports"`, "unknown field"},
		{request, `{"op":"dial"}`, `}`, `}{}`, "bytes after its end"},
		{request, `{"op":"dial"}`, `{"op":"dial"}`, ``, "EOF"},
		{answer, `{"id":1,"code":255}`, "255", "256", "exit code 256"},
		{answer, `{"id":1,"code":0}`, "0", "-1", "exit code -1"},
		{answer, `{"id":1,"memory_mib":0}`, "0", "-1", "decoding answer"},
		{orders, order, `"log_bytes":1`, `"log_bytes":-1`, "a limit is negative"},
		{orders, order, `"wall_time":2`, `"wall_time":-1`, "a limit is negative"},
		{orders, order, `"grace":3`, `"grace":0`, "a limit is negative"},
		{orders, order, `"disk_bytes":4`, `"disk_bytes":-1`, "a limit is negative"},
		{orders, order, `"dir":"/"`, `"dir":""`, "names no working directory"},
		{orders, order, `"dir":"/"`, `"dir":"x"`, `"x" is not absolute`},
		{orders, order, `"token":"t"`, `"token":""`, "has no token"},
		{orders, order, `["a"]`, `[]`, "names no program"},
		{orders, order, `["a"]`, `["","a"]`, "names no program"},
		{commands, `{"argv":["a"],"env":null,"dir":""}`, `"dir":""`, `"dir":"."`, `"." is not absolute`},
		{commands, `{"argv":["a"],"rows":65535}`, "65535", "65536", "decoding command"},
		{reports, report, "oom", "x", `unknown reason "x"`},
		{reports, report, `"code":1`, `"code":256`, "exit code 256"},
		{reports, report, "03:04:06", "03:04:04", "ended before it started"},
		{reports, report, "2020-01-02T03:04:05Z", "0001-01-01T00:00:00Z", "ended before it started"},
		{networks, network, "make", "run", `unknown operation "run"`},
		{networks, network, "10.77.0.2", "10.77.0.0", "Overlay.Address"},
		{networks, network, "10.77.0.2", "10.77.255.255", "Overlay.Address"},
		{networks, network, "10.77.0.2", "::1", "Overlay.Address"},
		{networks, network, "10.77.0.2", "::ffff:10.77.0.2", "Overlay.Address"},
		{networks, network, "10.77.0.2", "127.0.0.1", "Overlay.Address"},
		{networks, network, `"bits":16`, `"bits":33`, "Overlay.PrefixBits"},
		{networks, network, `"bits":16`, `"bits":-1`, "Overlay.PrefixBits"},
		{networks, network, `"mtu":1420`, `"mtu":1`, "Overlay.MTU"},
		{networks, network, `"grace":1`, `"grace":0`, "no grace or no token"},
		{networks, network, `"token":"t"`, `"token":""`, "no grace or no token"},
		{networks, `{"op":"mtu","mtu":1300}`, "1300", "70000", "Overlay.MTU"},
	} {
		if err := test.decode([]byte(test.good)); err != nil {
			t.Errorf("%s: %v", test.good, err)
		}
		bad := strings.Replace(test.good, test.old, test.new, 1)
		if err := test.decode([]byte(bad)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", bad, err, test.want)
		}
	}
}
