// The greeting hook in Go, with nothing but the standard library.
//
//	go run . 8080
//
// serves it on that port of the loopback interface; 0 takes a free one. The port is printed.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
)

type metadata struct {
	Name string `json:"name"`
}

type greeting struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Who string `json:"who"`
	} `json:"spec"`
}

type configMap struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Data       map[string]string `json:"data"`
}

type request struct {
	Parent   greeting `json:"parent"`
	Children struct {
		ConfigMaps map[string]configMap `json:"ConfigMap.v1"`
	} `json:"children"`
}

type answer struct {
	Status   map[string]string `json:"status"`
	Children []configMap       `json:"children"`
}

// sync goes from a Greeting and its ConfigMaps to what should exist.
func sync(r request) answer {
	name := r.Parent.Metadata.Name
	return answer{
		Status: map[string]string{"text": r.Children.ConfigMaps[name].Data["text"]},
		Children: []configMap{{
			APIVersion: "v1",
			Kind:       "ConfigMap",
			Metadata:   metadata{Name: name},
			Data:       map[string]string{"text": "Hello, " + r.Parent.Spec.Who + "!"},
		}},
	}
}

func main() {
	http.HandleFunc("POST /sync", func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 {
			http.Error(w, "the length is not told", http.StatusLengthRequired)
			return
		}
		var asked request
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(sync(asked)); err != nil {
			log.Print(err)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(http.Serve(listener, nil))
}
