package buyer

import "testing"

// The token is written down: a cluster that runs keeps it when its buyer is updated.
func TestClusterToken(t *testing.T) {
	t.Parallel()
	const want = "9e2c56840e946e4446bbbb77e119c17f0be936f1f393467ef32735aafa646c02"
	if got := clusterToken([32]byte{1, 2, 3}, "jabc"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if clusterToken([32]byte{1, 2, 3}, "jabd") == want || clusterToken([32]byte{1, 2}, "jabc") == want {
		t.Error("two clusters, or two buyers, have the same token")
	}
}
