package buyer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// ClusterToken is what a cluster's engine knows its own by, 64 hexadecimal digits. It follows from a secret that the buyer has anyway
// and the job's id, so that it is the same for as long as the journal lives and stands nowhere. ErrNoJob; ErrRefused for a plain job.
func (b *Buyer) ClusterToken(id string) (string, error) {
	j, err := b.Job(id)
	if err != nil {
		return "", err
	}
	if j.Spec.Cluster == nil {
		return "", fmt.Errorf("%w: job %s is no cluster", ErrRefused, j.ID)
	}
	return clusterToken(b.secret, j.ID), nil
}

func clusterToken(secret [32]byte, id string) string {
	mac := hmac.New(sha256.New, secret[:])
	mac.Write([]byte("starling/cluster/token/v1\x00" + id))
	return hex.EncodeToString(mac.Sum(nil))
}
