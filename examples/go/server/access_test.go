package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestTheKeyIsAskedForByTheAPIAlone(t *testing.T) {
	s := start(t, demoConfig(), settings{apiKeys: []string{"secret", "other"}}, time.Second)
	cases := []struct {
		name    string
		headers []string
		status  int
	}{
		{"none", nil, 401},
		{"empty", []string{""}, 401},
		{"another one", []string{"Bearer wrong"}, 401},
		{"no token", []string{"Bearer "}, 401},
		{"no scheme", []string{"secret"}, 401},
		{"another scheme", []string{"Basic secret"}, 401},
		{"a scheme without its space", []string{"Bearersecret"}, 401},
		{"a space too many", []string{"Bearer  secret"}, 401},
		{"the key and more", []string{"Bearer secret2"}, 401},
		{"two headers", []string{"Bearer secret", "Bearer secret"}, 401},
		{"the key", []string{"Bearer secret"}, 200},
		{"a scheme in small letters", []string{"bearer secret"}, 200},
		{"another key", []string{"Bearer other"}, 200},
	}
	for _, c := range cases {
		request := httptest.NewRequest("GET", "/v1/models", nil)
		request.Header["Authorization"] = c.headers
		recorder := httptest.NewRecorder()
		s.handler().ServeHTTP(recorder, request)
		if challenge := recorder.Header().Get("WWW-Authenticate"); recorder.Code != c.status || (challenge == "Bearer") != (c.status == 401) {
			t.Errorf("%s: %d %q", c.name, recorder.Code, challenge)
		}
	}
	for _, path := range []string{"/", "/health", "/healthz", "/ready"} {
		if status, _ := s.get(t, path); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
	}
	for _, path := range []string{"/metrics", "/v1/models"} {
		if status, _ := s.get(t, path); status != 401 {
			t.Errorf("%s without a key: %d", path, status)
		}
		for _, header := range []map[string]string{{"x-api-key": "secret"}, {"X-Api-Key": "other"}, {"Authorization": "Bearer secret", "x-api-key": "wrong"}} {
			if status, text := s.ask(t, "GET", path, "", header); status != 200 {
				t.Errorf("%s with %v: %d %s", path, header, status, text)
			}
		}
		if status, _ := s.ask(t, "GET", path, "", map[string]string{"Authorization": "Bearer wrong", "x-api-key": "secret"}); status != 401 {
			t.Errorf("%s with a wrong key and a right one: %d", path, status)
		}
	}
}

func TestOnLoopbackWithoutAKeyOnlyThisMachineIsAnswered(t *testing.T) {
	allowed := settings{hosts: []string{"ai.example"}, origins: []string{"https://page.example"}}
	open := start(t, demoConfig(), allowed, time.Second)
	closed := start(t, demoConfig(), settings{apiKeys: []string{"secret"}}, time.Second)
	port := open.url[strings.LastIndexByte(open.url, ':'):]
	cases := []struct {
		name, method, path, host string
		headers                  map[string]string
		status                   int
	}{
		{"by address", "GET", "/health", "127.0.0.1" + port, nil, 200},
		{"by another address of loopback", "GET", "/health", "127.9.9.9" + port, nil, 200},
		{"by the address of IPv6", "GET", "/health", "[::1]" + port, nil, 200},
		{"by name", "GET", "/health", "LocalHost" + port, nil, 200},
		{"by a name that is allowed", "GET", "/health", "ai.example", nil, 200},
		{"by another name", "GET", "/v1/models", "rebound.example" + port, nil, 403},
		{"by a name that begins alike", "GET", "/v1/models", "localhost.example" + port, nil, 403},
		{"by another address", "GET", "/metrics", "192.168.0.1" + port, nil, 403},
		{"at another port", "GET", "/", "localhost:1", nil, 403},
		{"without a port", "GET", "/", "localhost", nil, 403},
		{"a post of its own page", "POST", "/v1/completions", "localhost" + port, map[string]string{"Origin": "http://localhost" + port}, 200},
		{"a post of its own page, said by the browser", "POST", "/v1/completions", "localhost" + port, map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		{"a post of a page that is allowed", "POST", "/v1/completions", "localhost" + port, map[string]string{"Origin": "https://page.example", "Sec-Fetch-Site": "cross-site"}, 200},
		{"a post of another page", "POST", "/v1/completions", "localhost" + port, map[string]string{"Origin": "https://other.example"}, 403},
		{"a post of a page at another port", "POST", "/v1/completions", "localhost" + port, map[string]string{"Origin": "http://localhost:1"}, 403},
		{"a post of a page without an origin", "POST", "/v1/completions", "localhost" + port, map[string]string{"Origin": "null"}, 403},
		{"a post of another page, said by the browser", "POST", "/v1/completions", "localhost" + port, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
	}
	send := func(s *service, method, path, host string, headers map[string]string) (int, string) {
		request, err := http.NewRequest(method, s.url+path, strings.NewReader(`{"prompt": "x", "max_tokens": 1}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		request.Header.Set("Content-Type", "application/json")
		for name, value := range headers {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	for _, c := range cases {
		status, text := send(open, c.method, c.path, c.host, c.headers)
		if status != c.status || status == 403 && !strings.Contains(text, "permission_error") {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
	}
	// Whoever has the key is no page that a browser was tricked into showing.
	if status, text := send(closed, "POST", "/v1/completions", "ai.example", map[string]string{
		"Origin": "https://page.example", "Authorization": "Bearer secret"}); status != 200 {
		t.Errorf("with the key: %d %s", status, text)
	}
}

func TestPagesOfTrustedOriginsMayReadTheAnswers(t *testing.T) {
	const trusted, asked = "https://page.example", "authorization,content-type,x-stainless-os"
	for _, key := range []string{"", "secret"} {
		s := start(t, demoConfig(), settings{apiKeys: []string{key}, origins: []string{"https://first.example", trusted}}, time.Second)
		cases := []struct {
			name, method, path, origin string
			isPreflight                bool
			status                     int
			allowed                    string
		}{
			{"a preflight", "OPTIONS", "/v1/chat/completions", trusted, true, 204, trusted},
			{"a preflight of the models", "OPTIONS", "/v1/models", trusted, true, 204, trusted},
			{"a preflight of another page", "OPTIONS", "/v1/completions", "https://other.example", true, 0, ""},
			{"a preflight of a page that ends alike", "OPTIONS", "/v1/completions", "https://a" + trusted[8:], true, 0, ""},
			{"a preflight of a page that begins alike", "OPTIONS", "/v1/completions", trusted + ".example", true, 0, ""},
			{"a preflight of a page at another port", "OPTIONS", "/v1/completions", trusted + ":444", true, 0, ""},
			{"a preflight of no origin", "OPTIONS", "/v1/completions", "null", true, 0, ""},
			{"OPTIONS that is no preflight", "OPTIONS", "/v1/completions", trusted, false, 0, trusted},
			{"a post", "POST", "/v1/completions", trusted, false, 200, trusted},
			{"a post that is refused", "POST", "/v1/files", trusted, false, 404, trusted},
			{"the models", "GET", "/v1/models", trusted, false, 200, trusted},
			{"the models for another page", "GET", "/v1/models", "https://other.example", false, 200, ""},
		}
		for _, c := range cases {
			request, err := http.NewRequest(c.method, s.url+c.path, strings.NewReader(`{"prompt": "x", "max_tokens": 1}`))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Origin", c.origin)
			if c.isPreflight {
				// As a browser: without the key.
				request.Header.Set("Access-Control-Request-Method", "POST")
				request.Header.Set("Access-Control-Request-Headers", asked)
			} else {
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("Authorization", "Bearer "+key)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			header := response.Header
			if c.status != 0 && response.StatusCode != c.status || c.status == 0 && response.StatusCode < 400 ||
				header.Get("Access-Control-Allow-Origin") != c.allowed || header.Get("Vary") != "Origin" ||
				(header.Get("Access-Control-Allow-Headers") == asked) != (c.status == 204) ||
				strings.Contains(header.Get("Access-Control-Allow-Methods"), "POST") != (c.status == 204) {
				t.Errorf("key %q, %s: %s %v", key, c.name, response.Status, header)
			}
		}
	}
	s := start(t, demoConfig(), settings{}, time.Second)
	recorder := httptest.NewRecorder()
	s.handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/v1/models", nil))
	if header := recorder.Header(); header.Get("Vary") != "" || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without trusted origins: %v", header)
	}
}

func TestAnAddressBeyondLoopbackNeedsAKey(t *testing.T) {
	cases := []struct {
		addr      string
		settings  settings
		isAllowed bool
	}{
		{"localhost:0", settings{}, true},
		{"127.0.0.1:0", settings{}, true},
		{"[::1]:0", settings{}, true},
		{":0", settings{}, false},
		{"0.0.0.0:0", settings{}, false},
		{"[::]:0", settings{}, false},
		{"192.168.0.1:0", settings{}, false},
		{":0", settings{apiKeys: []string{"secret"}}, true},
		{":0", settings{allowNoKey: true}, true},
		{"no address", settings{allowNoKey: true}, false},
	}
	for _, c := range cases {
		if err := c.settings.checkAddress(c.addr); (err == nil) != c.isAllowed {
			t.Errorf("%s %+v: %v", c.addr, c.settings, err)
		}
	}
	for name, senseless := range map[string]settings{
		"an origin without a scheme":       {origins: []string{"page.example"}},
		"a number of requests below 0":     {maxRequests: -1},
		"a size below 0":                   {maxBodyBytes: -1},
		"a time below 0":                   {writeTimeout: -1},
		"less for all bodies than for one": {maxBodiesBytes: 1},
		"a body larger than all may be":    {maxBodyBytes: 1 << 40},
		"a skew below 0":                   {maxSkew: -1},
		"a key with a newline":             {apiKeys: []string{"secret\n"}},
	} {
		if _, err := newServer(nil, senseless); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestMethodsAndContentTypesAreChecked(t *testing.T) {
	s := start(t, demoConfig(), settings{}, time.Second)
	const body = `{"prompt": "x", "max_tokens": 1}`
	cases := []struct {
		name, method, path, kind string
		status                   int
		allow                    string
	}{
		{"JSON", "POST", "/v1/completions", "application/json", 200, ""},
		{"JSON with a charset", "POST", "/v1/completions", "Application/JSON; charset=utf-8", 200, ""},
		{"text", "POST", "/v1/completions", "text/plain", 415, ""},
		{"a form", "POST", "/v1/chat/completions", "application/x-www-form-urlencoded", 415, ""},
		{"two types", "POST", "/v1/embeddings", "text/plain, application/json", 415, ""},
		{"no type", "POST", "/v1/completions", "", 415, ""},
		{"GET of a completion", "GET", "/v1/completions", "", 405, "POST"},
		{"OPTIONS of a chat", "OPTIONS", "/v1/chat/completions", "", 405, "POST"},
		{"PUT of an embedding", "PUT", "/v1/embeddings", "application/json", 405, "POST"},
		{"DELETE of a model", "DELETE", "/v1/models/demo", "", 405, "GET, HEAD"},
		{"POST of the models", "POST", "/v1/models", "application/json", 405, "GET, HEAD"},
		{"POST of the health", "POST", "/health", "", 405, "GET, HEAD"},
		{"POST of the metrics", "POST", "/metrics", "", 405, "GET, HEAD"},
		{"POST of the page", "POST", "/", "", 405, "GET, HEAD"},
		{"HEAD of the models", "HEAD", "/v1/models", "", 200, ""},
		{"a method that nobody knows", "BREW", "/v1/models", "", 405, "GET, HEAD"},
		{"an unknown path", "GET", "/v1/files", "", 404, ""},
		{"a page that is not there", "GET", "/other", "", 404, ""},
	}
	for _, c := range cases {
		request := httptest.NewRequest(c.method, c.path, strings.NewReader(body))
		request.Header.Set("Content-Type", c.kind)
		recorder := httptest.NewRecorder()
		s.handler().ServeHTTP(recorder, request)
		if recorder.Code != c.status || recorder.Header().Get("Allow") != c.allow {
			t.Errorf("%s: %d, Allow %q: %s", c.name, recorder.Code, recorder.Header().Get("Allow"), recorder.Body)
		}
	}
}

func TestAConnectionTooManyIsClosed(t *testing.T) {
	s := start(t, demoConfig(), settings{maxRequests: 1}, time.Second)
	address := strings.TrimPrefix(s.url, "http://")
	for range 2 {
		idle, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
	}
	refused, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if n, err := refused.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes", n)
	}
}
