package buyer

import (
	"errors"
	"testing"
	"time"
)

func TestCursorsAreInOrder(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	newest, other, oldest := Job{ID: "jb", Created: at.Add(1)}, Job{ID: "jc", Created: at}, Job{ID: "jd", Created: at}
	if newest.cursor().compare(other.cursor()) >= 0 || other.cursor().compare(oldest.cursor()) >= 0 || oldest.cursor().compare(oldest.cursor()) != 0 {
		t.Error("jobs are not newest first, then by id")
	}
	for _, text := range []string{"", "x", ".", "1.", "1", "zzzzzzzzzzzzzzzzzz.j", "01.j", "+1.j"} {
		if c, err := parseCursor(text); !errors.Is(err, ErrQuery) {
			t.Errorf("%q is %+v, %v", text, c, err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(Job{ID: "jabc", Created: time.Unix(1000, 5)}.cursor().String())
	f.Add("1.2.3")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor(text)
		if err != nil {
			return
		}
		if c.String() != text {
			t.Fatalf("%q came back as %q", text, c)
		}
	})
}
