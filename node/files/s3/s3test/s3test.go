// Package s3test starts a real S3 server for tests: versitygw, on a folder of this machine.
package s3test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

const (
	// Program is the variable with the path of versitygw.
	Program = "STARLING_S3"
	// Bucket is a bucket of every server.
	Bucket = "bucket"
	// Key and Secret are the keys of a server's user.
	Key, Secret = "AKIASTARLINGTEST", "a-secret-of-tests-only"

	region = "eu-test-1"
	starts = 5
)

// Server is a running S3 server.
type Server struct {
	URL   string
	Dir   string         // of the files that are the bucket's objects; a file that is written there has no checksum
	Roots *x509.CertPool // of a server with TLS
	ca    string         // file of its certificate
}

// Start starts a server that ends with the test, with TLS if secure. If versitygw is not installed, the test is skipped
// with the reason.
func Start(t testing.TB, secure bool) *Server {
	t.Helper()
	program := find(t)
	dir := t.TempDir()
	for _, d := range []string{filepath.Join("data", Bucket), "meta"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	host := ownHost(t)
	s := &Server{Dir: filepath.Join(dir, "data", Bucket)}
	args := []string{"--access", Key, "--secret", Secret, "--region", region, "--quiet"}
	if secure {
		s.Roots, s.ca = certificate(t, dir, host)
		args = append(args, "--cert", s.ca, "--key", filepath.Join(dir, "key.pem"))
	}
	posix := []string{"posix", "--sidecar", filepath.Join(dir, "meta"), filepath.Join(dir, "data")}
	var said string
	for range starts { // another process may take the port first
		at := freeAddress(t, host)
		var ended <-chan struct{}
		ended, said = run(t, program, append(append(args, "--port", at), posix...))
		if s.URL = "http://" + at; secure {
			s.URL = "https://" + at
		}
		if listens(t, at, ended) {
			return s
		}
	}
	t.Fatalf("versitygw does not start: %s", said)
	return nil
}

// Env is a variable of the environment of a user of the server, as os.Getenv.
func (s *Server) Env(name string) string {
	return map[string]string{
		"AWS_ENDPOINT_URL": s.URL, "AWS_REGION": region, "AWS_ACCESS_KEY_ID": Key, "AWS_SECRET_ACCESS_KEY": Secret,
		"AWS_CA_BUNDLE": s.ca,
	}[name]
}

// find returns the path of versitygw.
func find(t testing.TB) string {
	t.Helper()
	if at := os.Getenv(Program); at != "" {
		return at
	}
	dir, err := os.Getwd()
	for err == nil {
		if _, gone := os.Stat(filepath.Join(dir, "go.mod")); gone == nil {
			break
		}
		if filepath.Dir(dir) == dir {
			err = errors.New("no go.mod above the working directory")
		}
		dir = filepath.Dir(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join(dir, "bin/.tools/versitygw-*/versitygw"))
	if err != nil || len(all) == 0 {
		t.Skipf("versitygw is not installed: make test installs it, or set %s to its path", Program)
	}
	return all[len(all)-1]
}

// ownHost returns a loopback address that no other server uses. On 127.0.0.1 another one could take the port between
// freeAddress and the start of the program, and would answer in its place.
func ownHost(t testing.TB) net.IP {
	t.Helper()
	host := net.IPv4(127, 0, 0, 1)
	if runtime.GOOS == "linux" { // has all of 127.0.0.0/8
		_, _ = rand.Read(host[len(host)-3:]) // never fails
		host[len(host)-1] = 1 + host[len(host)-1]%254
	}
	return host
}

// freeAddress is an address of a host of this machine without a listener.
func freeAddress(t testing.TB, host net.IP) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run starts the program until the test ends. ended is closed after its end; said is its output, if that came before.
func run(t testing.TB, program string, args []string) (ended <-chan struct{}, said string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = untilParentEnds()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	done, started := make(chan struct{}), make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // the program ends with the thread that started it
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() && out.Len() > 0 {
			t.Logf("versitygw: %s", out.String())
		}
	})
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
		said = out.String()
	default:
	}
	return done, said
}

// listens waits until a server accepts connections, or has ended.
func listens(t testing.TB, at string, ended <-chan struct{}) bool {
	t.Helper()
	for {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
			return true
		}
		select {
		case <-ended:
			return false
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// certificate writes cert.pem and key.pem of a server on this machine.
func certificate(t testing.TB, dir string, host net.IP) (roots *x509.CertPool, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "s3test"}, NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{host}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	file = filepath.Join(dir, "cert.pem")
	err = errors.Join(os.WriteFile(file, text, 0o600), os.WriteFile(filepath.Join(dir, "key.pem"),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return roots, file
}
