package confine

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestBoxInEnvironment(t *testing.T) {
	want := Box{Memory: 7, Read: []string{"/a b", "/\"c\""}, Files: []string{"/f"}, Write: []string{"/w"}}
	name, value, _ := strings.Cut(want.Env(), "=")
	t.Setenv(name, value)
	got, err := fromEnv()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v, %v", got, want, err)
	}
	if _, left := os.LookupEnv(name); left {
		t.Error("the program would see its box")
	}
	if got, err := fromEnv(); err != nil || !reflect.DeepEqual(got, Box{}) {
		t.Errorf("without one: %+v, %v", got, err)
	}
	t.Setenv(name, value[1:])
	if _, _, err := Enter(); err == nil || errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), boxEnv) {
		t.Errorf("a box that cannot be read: %v", err)
	}
}
