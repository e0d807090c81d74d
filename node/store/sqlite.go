package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The file names its format: `PRAGMA application_id` and `user_version`.
const (
	applicationID = 0x53544c4a // "STLJ"
	schemaVersion = 1
)

const (
	cacheKiB    = 512     // SQLite's page cache, small for idle peers
	walPages    = 256     // checkpoint after this many pages (1 MiB); bounds the work of opening after a crash too
	walBytes    = 4 << 20 // the log file is cut back to this after a checkpoint
	busyMillis  = 1000    // how long opening waits for another process that is just closing the journal
	listPage    = 256     // records List reads at a time
	maxGroup    = 128     // writes that share one commit at most
	schemaTable = `CREATE TABLE IF NOT EXISTS journal (
		kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, sum INTEGER NOT NULL,
		PRIMARY KEY (kind, key)) STRICT, WITHOUT ROWID`
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SQLite is a journal in one SQLite file, written ahead and synced at every commit. It has one connection and holds the
// file's lock while it is open. Each record carries a checksum, because SQLite has none.
//
// Writes that arrive while another is being synced wait and then share the next commit: one sync serves them all.
type SQLite struct {
	path string
	db   *sql.DB
	turn chan struct{} // holds one token: its holder uses the connection

	get, put, del, list *sql.Stmt

	mu     sync.Mutex
	queue  []*write
	broken error // set once a commit ended in a way that leaves its outcome open
	closed bool
}

var _ Store = (*SQLite)(nil)

// OpenSQLite opens the journal in the file at path, creating it (mode 0600) and its folder (0700) when missing. The
// time it takes does not grow with the journal. Errors: ErrLocked, ErrCorrupt, ErrVersion, ErrFull.
func OpenSQLite(path string) (*SQLite, error) {
	s, err := openSQLite(path)
	if err != nil {
		return nil, fmt.Errorf("opening journal %s: %w", path, translate(err))
	}
	return s, nil
}

func openSQLite(path string) (*SQLite, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite gives its log the same mode
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	// The driver sorts these by name. The log is turned on after them, in prepare: the lock must be exclusive before
	// the log is first used, so that its index needs no shared memory and no second peer gets in.
	q := url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyMillis), "locking_mode(EXCLUSIVE)", "synchronous(FULL)",
		fmt.Sprintf("cache_size(-%d)", cacheKiB), fmt.Sprintf("wal_autocheckpoint(%d)", walPages),
		fmt.Sprintf("journal_size_limit(%d)", walBytes), "temp_store(MEMORY)", "trusted_schema(OFF)",
	}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	s := &SQLite{path: path, db: db, turn: make(chan struct{}, 1)}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.turn <- struct{}{}
	return s, nil
}

func (s *SQLite) prepare() error {
	var mode string
	if err := s.db.QueryRow(`PRAGMA journal_mode=WAL`).Scan(&mode); err != nil {
		return err
	} else if mode != "wal" {
		return fmt.Errorf("this file system cannot keep a write-ahead log (journal mode %s)", mode)
	}
	var app, version, tables int
	err := s.db.QueryRow(`SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
		FROM pragma_application_id, pragma_user_version`).Scan(&app, &version, &tables)
	switch {
	case err != nil:
		return err
	case app != applicationID && (app != 0 || tables != 0):
		return fmt.Errorf("%w: the file belongs to another program", ErrCorrupt)
	case version > schemaVersion:
		return fmt.Errorf("%w: version: got %d, want %d", ErrVersion, version, schemaVersion)
	}
	if version < schemaVersion {
		for _, q := range []string{
			schemaTable,
			fmt.Sprintf("PRAGMA application_id=%d", applicationID),
			fmt.Sprintf("PRAGMA user_version=%d", schemaVersion),
		} {
			if _, err := s.db.Exec(q); err != nil {
				return err
			}
		}
	}
	for _, p := range []struct {
		to    **sql.Stmt
		query string
	}{
		{&s.get, `SELECT value, sum FROM journal WHERE kind = ? AND key = ?`},
		{&s.put, `INSERT INTO journal VALUES (?, ?, ?, ?) ` +
			`ON CONFLICT DO UPDATE SET value = excluded.value, sum = excluded.sum`},
		{&s.del, `DELETE FROM journal WHERE kind = ? AND key = ?`},
		{&s.list, `SELECT key, value, sum FROM journal WHERE kind = ? AND key >= ? ORDER BY key LIMIT ?`},
	} {
		if *p.to, err = s.db.Prepare(p.query); err != nil {
			return err
		}
	}
	return nil
}

// Path is the file of the journal.
func (s *SQLite) Path() string { return s.path }

// Get implements Store.
func (s *SQLite) Get(ctx context.Context, kind, key string) ([]byte, error) {
	if err := checkKey(kind, key); err != nil {
		return nil, err
	}
	give, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	var value []byte
	var sum int64
	switch err := s.get.QueryRow(kind, key).Scan(&value, &sum); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("reading journal: %w", translate(err))
	}
	return checked(kind, key, value, sum)
}

// List implements Store.
func (s *SQLite) List(ctx context.Context, kind, prefix string, fn func(key string, value []byte) error) error {
	from := prefix
	for {
		page, more, err := s.page(ctx, kind, prefix, from)
		if err != nil {
			return err
		}
		for _, p := range page {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(p.Key, p.Value); err != nil {
				return err
			}
		}
		if !more {
			return ctx.Err()
		}
		from = page[len(page)-1].Key + "\x00" // the least string above the last key
	}
}

// page reads up to listPage records from key `from` on; more reports whether there may be others after them.
func (s *SQLite) page(ctx context.Context, kind, prefix, from string) (page []Put, more bool, err error) {
	give, err := s.take(ctx)
	if err != nil {
		return nil, false, err
	}
	defer give()
	rows, err := s.list.Query(kind, from, listPage)
	if err != nil {
		return nil, false, fmt.Errorf("reading journal: %w", translate(err))
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var value []byte
		var sum int64
		if err := rows.Scan(&key, &value, &sum); err != nil {
			return nil, false, fmt.Errorf("reading journal: %w", translate(err))
		}
		if !strings.HasPrefix(key, prefix) {
			return page, false, nil
		}
		if value, err = checked(kind, key, value, sum); err != nil {
			return nil, false, err
		}
		page = append(page, Put{Kind: kind, Key: key, Value: value})
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("reading journal: %w", translate(err))
	}
	return page, len(page) == listPage, nil
}

// Close implements Store. It waits for the call that is using the file.
func (s *SQLite) Close() error {
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("closing journal: %w", translate(err))
	}
	return nil
}

func checksum(kind, key string, value []byte) int64 {
	c := crc32.Update(0, castagnoli, []byte(kind+"\x00"+key+"\x00"))
	return int64(crc32.Update(c, castagnoli, value))
}

func checked(kind, key string, value []byte, sum int64) ([]byte, error) {
	if checksum(kind, key, value) != sum {
		return nil, fmt.Errorf("%w: record %s %s has a wrong checksum", ErrCorrupt, kind, key)
	}
	if value == nil {
		value = []byte{}
	}
	return value, nil
}

// translate puts this package's name on an error of SQLite's.
func translate(err error) error {
	var e *sqlite.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case !errors.As(err, &e):
		return err
	}
	switch e.Code() & 0xff { // the low byte is the class, the rest detail
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", ErrFull, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return err
}
