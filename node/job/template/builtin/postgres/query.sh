# Starts the server, counts the rows of a table and stops: query.sh DATABASE
set -eu
bash "$(dirname "$0")/serve.sh" "$1" & server=$!
until psql -U postgres -qd "$1" -c 'create table t as select generate_series(1, 100000) n' 2>/dev/null; do
  kill -0 $server
  sleep 0.2
done
psql -U postgres -d "$1" -Atc "select 'rows ' || count(*) from t"
kill $server
wait $server
