package passwd

import (
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

const users = `# comment
root:x:0:0:root:/root:/bin/sh
ml:x:1234:1234:trainer:/home/ml:/bin/sh
homeless:x:7:8:::
relative:x:9:9::home:
huge:x:4294967295:1::/:
outside:x:70000:1::/:
broken:x:one:1::/:
short:x:5
last:x:6:6::/last:/bin/sh`

const groups = `root:x:0:
ml:x:1234:ml
extra:x:77:other,ml
twice:x:77:ml
many:x:70000:ml
staff:x:50`

func image(passwd, group string) fs.FS {
	files := fstest.MapFS{}
	for name, text := range map[string]string{"etc/passwd": passwd, "etc/group": group} {
		if text != "" {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return files
}

func TestFind(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]Account{
		"":           {Home: "/root"},
		"root":       {Home: "/root"},
		"ml":         {1234, 1234, []uint32{77}, "/home/ml"},
		"1234":       {1234, 1234, []uint32{77}, "/home/ml"},
		"ml:extra":   {1234, 77, nil, "/home/ml"},
		"ml:50":      {1234, 50, nil, "/home/ml"},
		"ml:":        {1234, 1234, []uint32{77}, "/home/ml"},
		":staff":     {0, 50, nil, "/root"},
		"4321":       {4321, 0, nil, "/"},
		"4321:65535": {4321, 65535, nil, "/"},
		"homeless":   {7, 8, nil, "/"},
		"relative":   {9, 9, nil, "/"},
		"last":       {6, 6, nil, "/last"},
		"1234:70":    {1234, 70, nil, "/home/ml"},
	} {
		got, err := Find(image(users, groups), user)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", user, got, err, want)
		}
	}
	for user, part := range map[string]string{
		"nobody": "not in /etc/passwd", "huge": "out of range", "outside": "out of range", "broken": "not in", "short": "not in",
		"65536": "out of range", "-1": "not in", "18446744073709551616": "not in", "ml:none": "not in /etc/group", "ml:65536": "out of range",
		"ml:many": "out of range", "ml:ml:ml": "not in /etc/group",
	} {
		if got, err := Find(image(users, groups), user); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %+v, %v; want an error with %q", user, got, err, part)
		}
	}
	if got, err := Find(image("", ""), "12:13"); err != nil || !reflect.DeepEqual(got, Account{12, 13, nil, "/"}) {
		t.Errorf("an image without files: %+v, %v", got, err)
	}
}

// Files of an image are a stranger's.
func TestFindInHostileFiles(t *testing.T) {
	t.Parallel()
	crowd := strings.Repeat("a:x:1:ml\n", 100) + strings.Repeat("g:x:", 1)
	var members strings.Builder
	for i := range 1000 {
		members.WriteString("g:x:" + strings.Repeat("1", i%4+1) + string(rune('0'+i%10)) + ":ml\n")
	}
	for name, files := range map[string]fs.FS{
		"a long line":            image(strings.Repeat("x", maxLine+1)+"\n"+users, groups),
		"a line without an end":  image(strings.Repeat("x", maxFile), groups),
		"a directory":            fstest.MapFS{"etc/passwd": &fstest.MapFile{Mode: fs.ModeDir}},
		"a pipe":                 fstest.MapFS{"etc/passwd": &fstest.MapFile{Mode: fs.ModeNamedPipe}},
		"groups in a long line":  image(users, strings.Repeat("x", maxLine+1)),
		"an entry far behind":    image(strings.Repeat("a:x:1:1::/:\n", maxFile/12+1)+users, groups),
		"no entry but much text": image(crowd, groups),
	} {
		if got, err := Find(files, "ml"); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got, err := Find(image(users, members.String()), "ml")
	if err != nil || len(got.Groups) > MaxGroups {
		t.Errorf("%d groups, %v", len(got.Groups), err)
	}
}

func FuzzFind(f *testing.F) {
	f.Add("ml", users, groups)
	f.Add("1:2", ":::::::", ":::\n::")
	f.Fuzz(func(t *testing.T, user, passwd, group string) {
		a, err := Find(image(passwd, group), user)
		if err != nil {
			return
		}
		if a.UID > MaxID || a.GID > MaxID || len(a.Groups) > MaxGroups || !strings.HasPrefix(a.Home, "/") {
			t.Errorf("%+v", a)
		}
	})
}
