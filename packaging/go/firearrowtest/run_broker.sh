# Runs a broker until standard input ends: when the tests close it, and also when their process is killed. Then the
# folder is deleted. Arguments: the folder, then the broker's command.
folder=$1
shift
"$@" </dev/null &
broker=$!
exec >/dev/null # only the broker holds the pipe of its output
trap '' INT HUP TERM
read -r _
kill -TERM "$broker" 2>/dev/null
wait "$broker"
code=$?
rm -rf "$folder"
exit "$code"
