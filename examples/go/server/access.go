package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// authorized passes on the requests that contain one of the keys, as Authorization: Bearer KEY or x-api-key: KEY.
func (s *server) authorized(next http.Handler) http.Handler {
	if len(s.apiKeys) == 0 {
		return next
	}
	wanted := make([][sha256.Size]byte, len(s.apiKeys))
	for i, key := range s.apiKeys {
		wanted[i] = sha256.Sum256([]byte(key))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Hashes have equal lengths, and all of them are compared, so that the time of the comparison reveals nothing about the keys.
		hashed := sha256.Sum256([]byte(keyOf(r.Header)))
		isKnown := 0
		for i := range wanted {
			isKnown |= subtle.ConstantTimeCompare(hashed[:], wanted[i][:])
		}
		if isKnown != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, r, &apiError{status: http.StatusUnauthorized, kind: "authentication_error", code: "invalid_api_key",
				message: "the API key is missing or wrong: send it as Authorization: Bearer KEY, or as x-api-key: KEY"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// keyOf returns the key of a request: that of Authorization, or that of x-api-key if there is no Authorization header.
func keyOf(header http.Header) string {
	if keys := header.Values("X-Api-Key"); len(keys) == 1 && len(header.Values("Authorization")) == 0 {
		return keys[0]
	}
	return bearerToken(header)
}

// bearerToken returns the text after "Bearer" if there is exactly one Authorization header, else an empty string.
func bearerToken(header http.Header) string {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// checkKeys refuses keys that no client can send in a header. The message does not contain the key.
func (s *settings) checkKeys() error {
	for _, key := range s.apiKeys {
		for i, character := range []byte(key) {
			if character <= ' ' || character > '~' {
				return fmt.Errorf("byte %d of the %d of the API key is %q, but a key consists of visible ASCII characters, without a newline at its end",
					i+1, len(key), character)
			}
		}
	}
	return nil
}

// local protects a server on loopback without a key from pages in the user's browser. It rejects POST requests from pages of other
// origins, and Host headers with a foreign name that resolves to this machine (DNS rebinding).
func (s *server) local(address net.Addr, next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	for _, origin := range s.origins {
		if err := origins.AddTrustedOrigin(origin); err != nil {
			panic(err) // newServer has checked it
		}
	}
	refuse := func(w http.ResponseWriter, r *http.Request, code, format string, args ...any) {
		e := badRequest("", format, args...)
		e.status, e.kind, e.code = http.StatusForbidden, "permission_error", code
		writeError(w, r, e)
	}
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, "origin_not_allowed", "pages of %s may not use this server: -origins allows it", r.Header.Get("Origin"))
	}))
	next = origins.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.isOwnName(r.Host, address) {
			refuse(w, r, "host_not_allowed", "this server is not %s: -hosts allows the name", r.Host)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// shared lets pages of trusted origins use the server. A browser asks before a page of another origin may send JSON or a key, and shows
// the page an answer only if that names the origin.
func (s *server) shared(next http.Handler) http.Handler {
	if len(s.origins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if !slices.Contains(s.origins, origin) {
			next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Origin", origin)
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			header.Set("Access-Control-Expose-Headers", "Retry-After, X-Request-Id")
			next.ServeHTTP(w, r)
			return
		}
		header.Add("Vary", "Access-Control-Request-Headers")
		header.Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
		// All that are asked for: clients add headers of their own, which the server ignores.
		if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
			header.Set("Access-Control-Allow-Headers", asked)
		}
		header.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}

// isOwnName reports whether a Host header names this server: loopback with its port, or a name that the operator allows.
func (s *server) isOwnName(host string, address net.Addr) bool {
	if slices.Contains(s.hosts, host) {
		return true
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "80"
	}
	own, isTCP := address.(*net.TCPAddr)
	if !isTCP || port != strconv.Itoa(own.Port) {
		return false
	}
	return strings.EqualFold(name, "localhost") || net.ParseIP(name).IsLoopback()
}

// checkAddress refuses an address that other machines can reach if there is no key.
func (s *settings) checkAddress(addr string) error {
	resolved, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return err
	}
	if len(s.apiKeys) == 0 && !s.allowNoKey && !resolved.IP.IsLoopback() {
		return fmt.Errorf("%s can be reached from other machines: set -api-key or -api-key-file, or -allow-no-key to let everybody in", addr)
	}
	return nil
}

// only accepts one method. A handler for GET accepts HEAD too.
func only(method string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
			next(w, r)
			return
		}
		allowed := method
		if method == http.MethodGet {
			allowed = "GET, HEAD"
		}
		w.Header().Set("Allow", allowed)
		e := badRequest("", "%s answers %s, not %s", r.URL.Path, allowed, r.Method)
		e.status, e.code = http.StatusMethodNotAllowed, "method_not_allowed"
		writeError(w, r, e)
	})
}

// checkContentType requires the Content-Type of JSON: a browser lets any page post text, but not JSON.
func checkContentType(r *http.Request) error {
	name := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(name)
	if err == nil && kind == "application/json" {
		return nil
	}
	e := badRequest("", "the Content-Type is %q, but it must be application/json", name)
	e.status, e.code = http.StatusUnsupportedMediaType, "unsupported_media_type"
	return e
}
