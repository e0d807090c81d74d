package entries

// alone reports whether no second entry of this network is known, so that the one there is must be believed.
func (k *Keeper) alone() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	shown := 0
	for _, c := range k.all {
		if c.Shown {
			shown++
		}
	}
	return shown <= 1
}

// Warning is the user's warning while the entry in use has no second witness; "" when there is one, when one was seen
// and is away, or when one is still tried.
func (k *Keeper) Warning() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	live := k.entriesLocked()
	if len(live) == 0 {
		return ""
	}
	others := false
	for id, c := range k.all {
		if id == live[0] {
			continue
		}
		if (c.Shown || c.reason == "") && k.apart(k.all[live[0]], c) {
			return ""
		}
		if c.reason == "" && len(live) == 1 {
			return ""
		}
		others = others || c.Shown
	}
	if others {
		return trustedKin
	}
	return trustedAlone
}

// trustedAlone and trustedKin name every way in which the command line and programs give a second entry.
const (
	trustedAlone = "only one entry peer is known: it could hide offers and quotes, which are compared with no " +
		"other's, and what it says of slots and payments is believed; name a second one as well " +
		"(--peer ADDR1,ADDR2 or Config.Peers)"
	trustedKin = "the entry peers that are known name each other or are in one network, and may be one's own: they " +
		"could hide offers and quotes, and what they say of slots and payments is believed; name one of somebody " +
		"else as well (--peer ADDR1,ADDR2 or Config.Peers)"
)

// warn logs a warning about the entries, once.
func (k *Keeper) warn() {
	text := k.Warning()
	if text == "" || text == k.warned {
		return
	}
	k.warned = text
	k.log.Warn(text, "entry", k.Entries())
}
