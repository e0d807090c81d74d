package objects

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-network/starling/node/files/s3"
)

// hostile is a client of a server that answers as it likes.
func hostile(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	site := httptest.NewServer(answer)
	t.Cleanup(site.Close)
	return connect(t, func(name string) string {
		return map[string]string{"AWS_ENDPOINT_URL": site.URL, "AWS_REGION": "x", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden"}[name]
	})
}

// describe writes the head of an object.
func describe(w http.ResponseWriter, size int, text string) {
	h := sha256.Sum256([]byte(text))
	w.Header().Set("ETag", `"e"`)
	w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
	w.Header().Set("X-Amz-Checksum-Sha256", base64.StdEncoding.EncodeToString(h[:]))
	w.Header().Set("X-Amz-Checksum-Type", "FULL_OBJECT")
	if size >= 0 {
		w.Header().Set("Content-Length", fmt.Sprint(size))
	}
}

// An object with other bytes than its description has is never read without an error, nor is it more than its size.
func TestAttackContent(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]http.HandlerFunc{
		"longer, by its own length": func(w http.ResponseWriter, _ *http.Request) {
			describe(w, 6, "12345")
			_, _ = io.WriteString(w, "123456")
		},
		"longer, without a length": func(w http.ResponseWriter, _ *http.Request) {
			describe(w, -1, "12345")
			endless(w)
		},
		"shorter, by its own length": func(w http.ResponseWriter, _ *http.Request) {
			describe(w, 4, "12345")
			_, _ = io.WriteString(w, "1234")
		},
		"shorter, without a length": func(w http.ResponseWriter, _ *http.Request) {
			describe(w, -1, "12345")
			_, _ = io.WriteString(w, "1234")
		},
		"shorter, without a length and a checksum": func(w http.ResponseWriter, _ *http.Request) {
			describe(w, -1, "12345")
			w.Header().Del("X-Amz-Checksum-Sha256")
			_, _ = io.WriteString(w, "1234")
			_ = http.NewResponseController(w).Flush()
		},
		"broken": func(w http.ResponseWriter, _ *http.Request) {
			describe(w, 5, "12345")
			_, _ = io.WriteString(w, "1234")
			panic(http.ErrAbortHandler)
		},
		"another checksum": func(w http.ResponseWriter, _ *http.Request) {
			describe(w, 5, "12345")
			_, _ = io.WriteString(w, "12346")
		},
		"another version": func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("If-Match") != `"e"` {
				t.Errorf("the version is not required: %q", req.Header)
			}
			w.WriteHeader(http.StatusPreconditionFailed)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := hostile(t, func(w http.ResponseWriter, req *http.Request) {
				if req.Method == http.MethodHead {
					describe(w, 5, "12345")
					return
				}
				answer(w, req)
			})
			o, err := c.Stat(t.Context(), name(t, bucket+"k"))
			if err != nil || o.Size != 5 || o.SHA256 != sumHex("12345") {
				t.Fatalf("%+v, %v", o, err)
			}
			got, err := read(t, c, o)
			if err == nil || len(got) > 5 {
				t.Errorf("got %.20q, %v", got, err)
			}
			o.Rel = "k"
			if err := c.Pack(t.Context(), io.Discard, []Object{o}, nil); err == nil {
				t.Error("it is in an archive")
			}
		})
	}
}

// A checksum counts only if it is a SHA-256 of all bytes.
func TestAttackChecksum(t *testing.T) {
	t.Parallel()
	for text, kind := range map[string]string{"": "FULL_OBJECT", "YWJj": "FULL_OBJECT", "?": "FULL_OBJECT", strings.Repeat("A", 43) + "=": "COMPOSITE", strings.Repeat("A", 43) + "=-2": "FULL_OBJECT", strings.Repeat("B", 43) + "=": ""} {
		c := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
			describe(w, 5, "")
			w.Header().Set("X-Amz-Checksum-Sha256", text)
			w.Header().Set("X-Amz-Checksum-Type", kind)
		})
		if o, err := c.Stat(t.Context(), name(t, bucket+"k")); err != nil || o.SHA256 != "" {
			t.Errorf("%s, %s: %+v, %v", text, kind, o, err)
		}
	}
	for _, size := range []string{"-1", "1125899906842625", "x", ""} {
		c := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
			describe(w, -1, "")
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(buf, "HTTP/1.1 200 OK\r\nContent-Length: %s\r\nETag: \"e\"\r\nLast-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nConnection: close\r\n\r\n", size)
			_ = buf.Flush()
		})
		if o, err := c.Stat(t.Context(), name(t, bucket+"k")); err == nil {
			t.Errorf("length %q: %+v", size, o)
		}
	}
}

// endless writes until the client has enough.
func endless(w io.Writer) {
	for text := bytes.Repeat([]byte("a"), 1<<16); ; {
		if _, err := w.Write(text); err != nil {
			return
		}
	}
}

// page writes a page of a listing.
func page(w io.Writer, next string, keys ...string) {
	fmt.Fprint(w, `<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType>`)
	if next != "" {
		fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", next)
	}
	for _, k := range keys {
		fmt.Fprint(w, "<Contents><Key>")
		_ = xml.EscapeText(w, []byte(url.QueryEscape(k)))
		fmt.Fprint(w, `</Key><Size>1</Size><ETag>"e"</ETag></Contents>`)
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

// A listing without end ends: of many keys, of empty pages, of one page, and of faults.
func TestAttackEndlessListing(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]func(w http.ResponseWriter, n int64){
		"keys": func(w http.ResponseWriter, n int64) {
			var keys []string
			for i := range 1000 {
				keys = append(keys, fmt.Sprintf("f/%d-%d", n, i))
			}
			page(w, "next", keys...)
		},
		"empty pages":      func(w http.ResponseWriter, n int64) { page(w, fmt.Sprint(n)) },
		"folders":          func(w http.ResponseWriter, n int64) { page(w, fmt.Sprint(n), "f/a/", "f/") },
		"pages of one key": func(w http.ResponseWriter, n int64) { page(w, fmt.Sprint(n), fmt.Sprintf("f/%d", n)) },
		"one page": func(w http.ResponseWriter, _ int64) {
			fmt.Fprint(w, `<?xml version="1.0"?><ListBucketResult><Contents><Key>f/`)
			endless(w)
		},
		"errors": func(w http.ResponseWriter, _ int64) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `<Error><Code>X</Code><Message>`)
			endless(w)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			const most = 5000
			var asked atomic.Int64
			c := hostile(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, asked.Add(1)) })
			all, err := c.List(t.Context(), name(t, bucket+"f/"), most)
			if err == nil || len(err.Error()) > 1000 {
				t.Errorf("%d objects, %.2000v", len(all), err)
			}
			if n := asked.Load(); n > maxPages+most/leastPage {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// Keys that are no clean paths, that are outside the folder, or that cannot be in one folder are refused. Those that
// differ in case only are two files.
func TestAttackKeys(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{
		{"f/../x"}, {"f/a/../../x"}, {"f//etc/passwd"}, {"/etc/passwd"}, {"f/./x"}, {"f/a\x00b"}, {"f/a\nb"}, {"f/\xff"}, {"f/.."}, {"f/a/.."}, {"g/x"}, {"x"}, {"f"},
		{"f/" + strings.Repeat("a", 1200)}, {"f/a\u2028"}, {"f//"}, {"f/a//"},
		{"f/a", "f/a"}, {"f/link", "f/link/x"}, {"f/link/x", "f/link"}, {"f/a", "f/a-b", "f/a/b/c"}, {"f/a/"},
	} {
		c := hostile(t, func(w http.ResponseWriter, _ *http.Request) { page(w, "", keys...) })
		if all, err := c.List(t.Context(), name(t, bucket+"f/"), 100); !errors.Is(err, s3.ErrKey) {
			t.Errorf("%q: %v, %v", keys, all, err)
		}
	}
	c := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
		page(w, "", "f/README", "f/readme", "f/a!", "f/a/b", `f/c:\x`, "f/~")
	})
	all, err := c.List(t.Context(), name(t, bucket+"f/"), 100)
	var got []string
	for _, o := range all {
		got = append(got, o.Rel)
	}
	if want := []string{"README", "a/b", "a!", `c:\x`, "readme", "~"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

// Redirects are not followed: a server does not send the user's requests elsewhere.
func TestAttackRedirect(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	lan := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		describe(w, 5, "12345")
		_, _ = io.WriteString(w, "12345")
	}))
	t.Cleanup(lan.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		c := hostile(t, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("X-Amz-Bucket-Region", strings.TrimPrefix(lan.URL, "http://"))
			http.Redirect(w, req, lan.URL+"/", status)
		})
		_, stat := c.Stat(t.Context(), name(t, bucket+"k"))
		_, list := c.List(t.Context(), name(t, bucket), 10)
		_, open := c.Open(t.Context(), Object{Name: name(t, bucket+"k"), Size: 5})
		_, _, write := c.PutFolder(t.Context(), name(t, bucket), folder(t, map[string]string{"a": "1"}), nil)
		for i, err := range []error{stat, list, open, write} {
			if err == nil {
				t.Errorf("%d: request %d succeeded", status, i)
			}
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d requests went where the server sent them", n)
	}
}

// A server that has stored something else, or nothing, is not believed.
func TestAttackStored(t *testing.T) {
	t.Parallel()
	for what, answer := range map[string]func(w http.ResponseWriter, after bool){
		"another checksum": func(w http.ResponseWriter, _ bool) { describe(w, 0, "other") },
		"nothing":          func(w http.ResponseWriter, after bool) { missing(w, after) },
		"another size": func(w http.ResponseWriter, after bool) {
			if after {
				w.Header().Set("Last-Modified", time.Unix(0, 0).UTC().Format(http.TimeFormat))
				w.Header().Set("Content-Length", "4")
			}
		},
		"another checksum later": func(w http.ResponseWriter, after bool) {
			if after {
				describe(w, 5, "12346")
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Bool
			c := hostile(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				switch {
				case req.Method == http.MethodPut:
					sent.Store(true)
					answer(w, false)
				case sent.Load():
					answer(w, true)
				default:
					missing(w, true)
				}
			})
			_, _, err := c.PutFolder(t.Context(), name(t, bucket), folder(t, map[string]string{"a": "12345"}), nil)
			var part *Incomplete
			if !errors.As(err, &part) || !slices.Equal(part.Missing, []string{"a"}) || !sent.Load() || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%v", err)
			}
		})
	}
}

func missing(w http.ResponseWriter, missing bool) {
	if missing {
		w.WriteHeader(http.StatusNotFound)
	}
}
