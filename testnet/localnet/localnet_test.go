package localnet_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/testnet/localnet/localnettest"
)

// ownerEnv makes this test binary an owner that starts a chain, prints the pid of its Node process and waits to be killed.
const ownerEnv = "STARLING_TEST_LOCALNET_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) == "1" {
		owner()
		return
	}
	os.Exit(m.Run())
}

func owner() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	c, err := localnet.Start(ctx, localnet.Config{SlotMillis: localnettest.SlotMillis})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println(c.PID())
	<-ctx.Done()
	_ = c.Close()
}

// call sends one JSON-RPC body and returns the answer as it came.
func call(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestChain(t *testing.T) {
	t.Parallel()
	c := localnettest.Start(t, localnet.Config{})
	g := c.Genesis("test", 10)
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := c.FundKey(t.Context(), chaintest.RandomKey(), 77, 1_000_000); err != nil {
		t.Fatal(err)
	}
	if supply, err := c.Supply(t.Context()); err != nil || supply != 77 {
		t.Errorf("supply %d, %v", supply, err)
	}
	t.Run("Cheats", func(t *testing.T) {
		for _, method := range []string{"surfnet_setAccount", "surfnet_setTokenAccount", "surfnet_timeTravel", "GETSLOT", "", "getSlot "} {
			got := call(t, c.URL(), fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":[]}`, method))
			if !strings.Contains(got, `"code":-32601`) || !strings.Contains(got, `"id":7`) {
				t.Errorf("%q: %s", method, got)
			}
		}
		// A second "method" must not be read by one and not the other.
		got := call(t, c.URL(), `{"jsonrpc":"2.0","id":1,"method":"surfnet_resetNetwork","METHOD":"getSlot","method":"getSlot"}`)
		if !strings.Contains(got, `"result":`) {
			t.Errorf("getSlot, said twice: %s", got)
		}
	})
	t.Run("Batch", func(t *testing.T) {
		got := call(t, c.URL(), `[{"jsonrpc":"2.0","id":1,"method":"getSlot"},{"jsonrpc":"2.0","id":2,"method":"surfnet_pauseClock"}]`)
		var answers []struct {
			ID     int
			Result *uint64
			Error  *struct{ Code int }
		}
		if err := json.Unmarshal([]byte(got), &answers); err != nil || len(answers) != 2 || answers[0].Result == nil || answers[1].Error == nil {
			t.Errorf("%v: %s", err, got)
		}
	})
	t.Run("Malformed", func(t *testing.T) {
		for _, body := range []string{"", "null", "[]", "7", "{", `"getSlot"`, "[" + strings.Repeat("{},", 200) + "{}]"} {
			if got := call(t, c.URL(), body); !strings.Contains(got, `"error"`) {
				t.Errorf("%.20q: %s", body, got)
			}
		}
		resp, err := http.Post(c.URL(), "text/plain", bytes.NewReader([]byte(`{"method":"getSlot"}`)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("a form of another origin was taken")
		}
	})
	t.Run("BlockTime", func(t *testing.T) {
		var answer struct{ Result struct{ BlockTime int64 } }
		var slot struct{ Result uint64 }
		if err := json.Unmarshal([]byte(call(t, c.URL(), `{"jsonrpc":"2.0","id":1,"method":"getSlot","params":[{"commitment":"confirmed"}]}`)), &slot); err != nil {
			t.Fatal(err)
		}
		got := call(t, c.URL(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"getBlock","params":[%d,{"transactionDetails":"none","commitment":"confirmed"}]}`, slot.Result))
		if err := json.Unmarshal([]byte(got), &answer); err != nil {
			t.Fatal(err)
		}
		if off := time.Since(time.Unix(answer.Result.BlockTime, 0)).Abs(); off > time.Hour {
			t.Errorf("block time is %v off: %s", off, got)
		}
	})
}

func TestCloseTwiceAndSideBySide(t *testing.T) {
	t.Parallel()
	a, b := localnettest.Start(t, localnet.Config{}), localnettest.Start(t, localnet.Config{SlotMillis: 50})
	if a.URL() == b.URL() || a.Mint() == b.Mint() {
		t.Error("two chains are one")
	}
	for range 2 {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	<-a.Done()
	if a.Err() == nil || b.Err() != nil {
		t.Errorf("closed: %v, open: %v", a.Err(), b.Err())
	}
}

// TestOwnerKilled: the Node process ends when its owner is killed without a chance to stop it.
func TestOwnerKilled(t *testing.T) {
	t.Parallel()
	if !localnet.Installed() {
		localnettest.Start(t, localnet.Config{}) // installs, or skips
	}
	for _, sig := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), ownerEnv+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		var pid int
		if _, scan := fmt.Sscan(line, &pid); err != nil || scan != nil {
			t.Fatalf("owner said %q, %v", line, err)
		}
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatalf("node process %d: %v", pid, err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for alive(pid) {
			select {
			case <-tick.C:
			case <-t.Context().Done():
				t.Fatalf("node process %d outlives its owner", pid)
			}
		}
	}
}

// alive reports whether the process runs: one that is dead and not yet reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestNoTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if _, err := localnet.Start(t.Context(), localnet.Config{}); err == nil || !strings.Contains(err.Error(), "--solana-rpc") {
		t.Errorf("without Node.js: %v", err)
	}
}
