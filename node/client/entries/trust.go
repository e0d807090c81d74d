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

// trustedAlone and trustedKin name both ways to add a second entry: by flag and by configuration.
const (
	trustedAlone = "only one entry peer is known: it could hide offers and quotes, and its slots and " +
		"payments are not compared with another's; name a second entry " +
		"(--peer ADDR1,ADDR2 or Config.Peers)"
	trustedKin = "the known entry peers name each other or share a network, so one operator may run them: they " +
		"could hide offers and quotes, and forge slots and payments; name an entry of another operator " +
		"(--peer ADDR1,ADDR2 or Config.Peers)"
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
