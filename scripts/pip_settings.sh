# shellcheck shell=bash
# Read by other scripts: `pip_settings PYTHON` exports for uv what that Python's pip is told of where packages come from.
pip_settings() {
  local key value
  while IFS='=' read -r key value; do
    value=${value#\'} value=${value%\'} value=${value//\\n/ }
    case ${key##*.} in
      index-url) export UV_DEFAULT_INDEX=$value ;;
      extra-index-url) export UV_INDEX=$value UV_INDEX_STRATEGY=unsafe-best-match ;;
      find-links) export UV_FIND_LINKS=${value// /,} ;;
      no-index) export UV_NO_INDEX=1 ;;
      constraint) export UV_CONSTRAINT=$value ;;
      cert) export SSL_CERT_FILE=$value ;;
    esac
  done < <("$1" -m pip config list)
}
