package guard

import (
	"encoding/json"
	"reflect"
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
