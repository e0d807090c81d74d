package record

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Every selector takes the jobs that it names, and no others.
func TestQuery(t *testing.T) {
	t.Parallel()
	at, ci := time.Unix(1000, 0), "ci"
	job := func(id string, state State, name, key string, created time.Time) Job {
		j := Job{ID: id, State: state, Key: key, Created: created}
		j.Spec.Name = name
		return j
	}
	all := []Job{
		job("ja", Running, "train", "", at), job("jb", Succeeded, "train-2", "ci", at.Add(time.Second)),
		job("jc", Failed, "render", "ci", at.Add(2*time.Second)), job("jd", Settling, "render", "", at.Add(3*time.Second)),
	}
	for want, q := range map[string]Query{
		"ja jb jc jd": {}, "ja jd": {State: "open"}, "jb jc": {State: "ended"}, "jc": {State: "failed"}, "ja jb": {Name: "tra"},
		"jc jd": {Since: at.Add(2 * time.Second)}, "jb": {Key: &ci, Name: "train"}, "ja": {After: all[1].Cursor().String()},
	} {
		s, err := q.Check()
		if err != nil || s.Limit != PageDefault {
			t.Fatalf("%+v: limit %d, %v", q, s.Limit, err)
		}
		var got []string
		for _, j := range all {
			if s.Has(j) {
				got = append(got, j.ID)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v: got %v, want %s", q, got, want)
		}
	}
	for _, q := range []Query{{Limit: -1}, {Limit: PageMax + 1}, {State: "lost"}, {After: "x"}} {
		if _, err := q.Check(); !errors.Is(err, ErrQuery) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if s, err := (Query{Limit: PageMax}).Check(); err != nil || s.Limit != PageMax {
		t.Errorf("the largest page: %d, %v", s.Limit, err)
	}
}

func TestCursorsAreInOrder(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	newest, other := Job{ID: "jb", Created: at.Add(1)}.Cursor(), Job{ID: "jc", Created: at}.Cursor()
	oldest := Job{ID: "jd", Created: at}.Cursor()
	if newest.Compare(other) >= 0 || other.Compare(oldest) >= 0 || oldest.Compare(oldest) != 0 {
		t.Error("jobs are not newest first, then by id")
	}
	for _, text := range []string{"", "x", ".", "1.", "1", "zzzzzzzzzzzzzzzzzz.j", "01.j", "+1.j"} {
		if c, err := ParseCursor(text); !errors.Is(err, ErrQuery) {
			t.Errorf("%q is %+v, %v", text, c, err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(Job{ID: "jabc", Created: time.Unix(1000, 5)}.Cursor().String())
	f.Add("1.2.3")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCursor(text)
		if err != nil {
			return
		}
		if c.String() != text {
			t.Fatalf("%q came back as %q", text, c)
		}
	})
}
