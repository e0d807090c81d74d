package data

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/starling-network/starling/p2p/blob"
)

// servers answers as a web server, a hub and a gateway, on one address.
type servers struct {
	*httptest.Server
	roots string // file with the certificate of its authority
	big   []byte // content of /files/big and of the hub's model
	block []byte // of IPFS
	cid   string // of block

	mu    sync.Mutex
	reads int // of big
}

const commit = "0123456789abcdef0123456789abcdef01234567"

func newServers(t *testing.T) *servers {
	t.Helper()
	s := &servers{big: make([]byte, 8<<20), block: []byte("a block of IPFS\n")}
	_, _ = rand.Read(s.big) // never fails
	id, _, err := blob.SumOf(bytes.NewReader(s.block))
	if err != nil {
		t.Fatal(err)
	}
	s.cid = id.String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /files/big", s.serveBig)
	mux.HandleFunc("GET /files/wrong", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("no"), len(s.big)/2))
	})
	mux.HandleFunc("GET /files/endless", serveEndless)
	mux.HandleFunc("GET /files/short", s.serveShort)
	mux.Handle("GET /files/inside", http.RedirectHandler("https://127.0.0.1:1/secret", http.StatusFound))
	mux.HandleFunc("HEAD /acme/model/resolve/main/model.bin", s.serveHub)
	mux.HandleFunc("GET /acme/model/resolve/"+commit+"/model.bin", s.serveHub)
	mux.HandleFunc("GET /ipfs/"+s.cid, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(s.block) })
	s.Server = httptest.NewUnstartedServer(mux)
	s.TLS, s.roots = certificate(t)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// serveBig counts the reads of the whole content.
func (s *servers) serveBig(w http.ResponseWriter, req *http.Request) {
	if r := req.Header.Get("Range"); r == "" || r == "bytes=0-" {
		s.mu.Lock()
		s.reads++
		s.mu.Unlock()
	}
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(s.big))
}

// read returns the number of reads since the last call.
func (s *servers) read() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, s.reads = s.reads, 0
	return n
}

// serveEndless sends until the reader hangs up.
func serveEndless(w http.ResponseWriter, _ *http.Request) {
	for chunk := make([]byte, 64<<10); ; {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// serveShort announces more bytes than it sends.
func (s *servers) serveShort(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", fmt.Sprint(len(s.big)))
	_, _ = w.Write(s.big[:1<<20])
}

// serveHub answers as the hub does for a large file: with its digest, and a redirect to the server that has it.
func (s *servers) serveHub(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("X-Repo-Commit", commit)
	w.Header().Set("X-Linked-Size", fmt.Sprint(len(s.big)))
	w.Header().Set("X-Linked-Etag", `"`+sumOf(s.big)+`"`)
	http.Redirect(w, req, "/files/big", http.StatusFound)
}

func sumOf(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// certificate makes the certificate of a server on loopback. It is its own authority.
func certificate(t *testing.T) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "data"}, NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "roots.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	own := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{Certificates: []tls.Certificate{own}}, file
}
