# Transcribes /data/speech with whisper.cpp: transcribe.sh MODEL LANGUAGE
set -eu
curl -fsSL -o /scratch/model.bin "https://huggingface.co/ggerganov/whisper.cpp/resolve/main/ggml-$1.bin"
whisper-cli -m /scratch/model.bin -l "$2" -f /data/speech -otxt -osrt -of /out/speech
