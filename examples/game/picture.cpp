// The pictures of the game, drawn with letters: each letter is a colour of the palette, and a dot is transparent.
#include "picture.hpp"

#include <map>

namespace game {
namespace {

const std::map<char, colour> palette = {
    {'k', {34, 28, 38}},    {'w', {244, 240, 232}}, {'s', {238, 190, 150}}, {'S', {206, 150, 112}},
    {'r', {206, 84, 52}},   {'R', {150, 54, 40}},   {'b', {138, 92, 58}},   {'B', {94, 62, 44}},
    {'g', {96, 156, 84}},   {'G', {58, 108, 66}},   {'y', {246, 206, 92}},  {'o', {236, 146, 60}},
    {'u', {86, 124, 190}},  {'p', {150, 104, 176}}, {'l', {192, 192, 200}}, {'d', {110, 110, 122}},
    {'t', {222, 178, 112}}, {'T', {180, 128, 72}},  {'n', {250, 226, 178}},
};

picture read_picture(std::initializer_list<const char*> rows) {
  picture drawing;
  for (std::string_view row : rows) {
    drawing.width = static_cast<int>(row.size());
    drawing.height++;
    for (char pixel : row) {
      auto found = palette.find(pixel);
      drawing.pixels.push_back(found == palette.end() ? std::nullopt : std::optional<colour>(found->second));
    }
  }
  return drawing;
}

}  // namespace

// clang-format off
const picture& portrait(std::string_view name) {
  static const std::map<std::string_view, picture> portraits = {
    {"Brenna", read_picture({
       "......RRRRRRRR......",
       "....RRrrrrrrrrRR....",
       "...RrrrrrrrrrrrrR...",
       "..RrrrrrrrrrrrrrrR..",
       "..RrruuuuuuuuuurrR..",
       "..RruuuuuuuuuuuurR..",
       "..RrssssssssssssrR..",
       "..RrssssssssssssrR..",
       "..RrsRRssssssRRsrR..",
       "..rrskksssssskksrr..",
       "..rrskksssssskksrr..",
       "..rrsssssSSsssssrr..",
       "..rrsssssSSsssssrr..",
       "..rr.ssssssssss.rr..",
       "..r..sssRRRRsss..r..",
       "..r...SssssssS...r..",
       "......SSssssSS......",
       "....ddBssSSssBdd....",
       "..ddddBBssssBBdddd..",
       ".dddddbbbbbbbbddddd.",
       ".ddddbbbbbbbbbbdddd.",
       ".ddddbbbbbbbbbbdddd.",
    })},
    {"Ilse", read_picture({
       ".......llllll.......",
       "......llllllll......",
       "......ddlllldd......",
       "....llllllllllll....",
       "...llllllllllllll...",
       "..llllldlllldlllll..",
       "..lllldssssssdllll..",
       ".lllldssssssssdllll.",
       ".llldssssssssssdlll.",
       ".lllssddssssddsslll.",
       ".lldsskksssskkssdll.",
       ".lldsskksssskkssdll.",
       ".lllsssssSSssssslll.",
       ".llprrsssSSsssrrpll.",
       "..l.srssssssssrs.l..",
       ".....sssRRRRsss.....",
       "......SssssssS......",
       "....GgSSssssSSgG....",
       "..GGggggssssggggGG..",
       ".GGgggggyyyygggggGG.",
       ".GgggggggyygggggggG.",
       ".GggggggggggggggggG.",
    })},
    {"Urs", read_picture({
       ".....wwwwwwwwww.....",
       "...wwwwwwwwwwwwww...",
       "..wwwwwwwwwwwwwwww..",
       "..wwwwlwwwwwwlwwww..",
       "..wwwwlwwwwwwlwwww..",
       "...wwwwlwwwwlwwww...",
       "....llllllllllll....",
       "....wwwwwwwwwwww....",
       "....bssssssssssb....",
       "....bssssssssssb....",
       "...sssBBssssBBsss...",
       "...SsskksssskkssS...",
       "...SsskksssskkssS...",
       "....srsssSSsssrs....",
       "....rrssSSSSssrr....",
       "....ssbbbbbbbbss....",
       "....sbbbsRRsbbbs....",
       ".....ssssssssss.....",
       "......SSssssSS......",
       "....wwwwSSSSwwww....",
       "..wwwwwwyyyywwwwww..",
       ".wwwwwwlwwwwlwwwwww.",
    })},
  };
  return portraits.at(name);
}

const picture* emoji(char32_t character) {
  static const std::map<char32_t, picture> emojis = {
    {U'\U0001F525', read_picture({ // flame
       "....r....",
       "...rr....",
       "..rror.r.",
       "..roorrr.",
       ".rroyoor.",
       ".royyoor.",
       ".royyyor.",
       "..oynyo..",
       "...ono...",
    })},
    {U'\U0001F408', read_picture({ // cat
       ".k.....k.",
       ".kk...kk.",
       ".kkkkkkk.",
       ".kykkkyk.",
       ".kkkrkkk.",
       "..kkkkk..",
       "...kkk...",
       "..kkkkk.k",
       "..kkkkkk.",
    })},
    {U'\U0001F33F', read_picture({ // herb
       ".......gg",
       "....g.ggg",
       ".gg.gggg.",
       "ggg.ggg..",
       ".ggggg.gg",
       "...Ggggg.",
       "..GG.gg..",
       ".GG......",
       "GG.......",
    })},
    {U'\U0001F331', read_picture({ // sprout
       ".........",
       "gg.....gg",
       "ggg...ggg",
       ".ggg.ggg.",
       "..gggGg..",
       "....G....",
       "....G....",
       "..bbbbb..",
       ".bbBbbbb.",
    })},
    {U'\U0001F319', read_picture({ // moon
       "...yyy...",
       "..yyyn...",
       ".yyyn....",
       ".yyy.....",
       ".yyy.....",
       ".yyyn....",
       ".yyyyn..y",
       "..yyyyyy.",
       "...yyyy..",
    })},
    {U'\U0001F950', read_picture({ // croissant
       ".........",
       "...ttt...",
       "..tTtTtt.",
       ".tTttTttt",
       ".tTtTtTtt",
       "ttT...TTt",
       "tT.....Tt",
       "t.......t",
       ".........",
    })},
    {U'\U0001F956', read_picture({ // baguette
       "......ttt",
       ".....tntt",
       "....tntnt",
       "...tntntT",
       "..tntntT.",
       ".tntntT..",
       "ttntT....",
       "ttTT.....",
       "TT.......",
    })},
    {U'\U0001F60B', read_picture({ // yum
       "..yyyyy..",
       ".yyyyyyy.",
       "yykyyykyy",
       "yykyyykyy",
       "yyyyyyyyy",
       "yyrrrrryy",
       ".yywrrwy.",
       "..yyrrr..",
       "....rr...",
    })},
    {U'\U0001F44B', read_picture({ // wave
       "..s.s.s..",
       "..s.s.s.s",
       "..s.s.s.s",
       "s.sssssss",
       "ss.sssssS",
       ".ssssssS.",
       "..sssssS.",
       "...sssS..",
       "...sss...",
    })},
    {U'\U0001F60A', read_picture({ // smile
       "..yyyyy..",
       ".yyyyyyy.",
       "yykyyykyy",
       "yykyyykyy",
       "yyyyyyyyy",
       "yrkyyykry",
       ".yykkkyy.",
       "..yyyyy..",
       ".........",
    })},
  };
  auto found = emojis.find(character);
  return found == emojis.end() ? nullptr : &found->second;
}
// clang-format on

}  // namespace game
