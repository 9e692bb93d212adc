"""Words and sentence patterns from which `generate.py` builds conversations, one `Lexicon` per language.

In: nothing. Out: values. Slots in braces are filled from a `Case` (`{id} {goods} {amount} {date} {place}
{name} {code}`) and from `{detail}`, a sentence of the lexicon itself. Written for this project.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lexicon:
    """What one language needs to talk about orders, repairs and dates."""

    system: str
    goods: tuple[str, ...]
    names: tuple[str, ...]
    places: tuple[str, ...]
    details: tuple[str, ...]
    """Whole sentences without slots, the prose between the facts."""
    openings: tuple[str, ...]
    """A user tells of a new case."""
    questions: tuple[str, ...]
    """A user asks about the case just spoken of."""
    recalls: tuple[str, ...]
    """A user asks about a case of long ago, naming no more than the thing."""
    decisions: tuple[str, ...]
    """The assistant settles a case."""
    answers: tuple[str, ...]
    """The assistant answers and repeats facts."""
    states: tuple[str, ...]
    gap: str = ""
    """What stands between two sentences."""


ZH = Lexicon(
    system="你是一家综合商城的客服助手。先用工具核实，再回答；单号、金额和日期必须与记录一致。",
    goods=(
        "空气净化器", "扫地机器人", "电压力锅", "蓝牙音箱", "机械键盘", "儿童自行车", "登山背包", "护眼台灯", "电动牙刷", "咖啡研磨机",
        "折叠书桌", "羽绒睡袋", "便携打印机", "洗地机", "智能门锁", "恒温热水壶", "猫用饮水机", "露营帐篷", "加湿器", "曲面显示器",
        "手持云台", "冰箱除味盒", "移动硬盘", "烘干机", "行车记录仪", "料理机", "筋膜枪", "人体工学椅", "电子阅读器", "净水滤芯",
    ),
    names=("周屿", "沈若溪", "贺明", "陆青禾", "邱树", "唐一帆", "许念", "高远山", "柳絮", "方知行", "袁小满", "苏木", "乔楚", "温故", "简宁", "黎川"),
    places=("松江仓", "望城分拨点", "龙泉驿站", "滨江营业部", "金水服务网点", "南沙前置仓", "浑南中转场", "雁塔自提柜", "海沧分拣中心", "青山湖门店", "吴中维修站", "武侯体验店"),
    details=(
        "外箱有一角被压扁了，里面的泡沫倒是完整的。", "昨天晚上试了三次，每次都是到一半就停。", "说明书里写的步骤和实物对不上，图也模糊。", "我白天上班，只有傍晚以后能接电话。",
        "之前那位同事说会回电，等了两天也没有消息。", "朋友买的同款没有这个问题，所以我觉得不是用法的事。", "照片和视频我都留着，需要的话马上发过来。", "不是钱的事，就是想知道到底算谁的责任。",
        "仓库那边的记录比较乱，我花了些时间才对上。", "系统里有两条相近的记录，已经确认是同一件事。", "这种情况一般先检测再决定，不会让您白跑一趟。", "运费由我们承担，您不用先垫付。",
        "如果赶上周末，师傅可能会晚半天，我会提前告诉您。", "配件从外地调过来，路上大约要三四天。", "老人在家，麻烦上门前先敲门，别按门铃。", "发票的抬头先不要动，等这边处理完再说。",
        "隔壁邻居也碰到过，他当时是换了一个新的。", "我把前后的时间都写在备注里了，下次不用再重复一遍。", "声音不大，但是夜里听得很清楚，睡不着。", "颜色和页面上差得有点多，在灯下看更明显。",
        "刚才断线了，前面说到哪里您再看一眼。", "这一步确实容易漏，不少客户都问过。", "押金已经原路退回，银行到账会慢一些。", "重新打包的时候请把充电线和遥控器都放进去。",
    ),
    openings=(
        "{goods}出问题了，单号{id}，当时付了{amount}元，{date}收到的。", "您好，我在你们这里买的{goods}，订单{id}，到现在还停在{place}没动。", "想退掉{goods}，{id}这一单，实付{amount}元，能退多少？",
        "{date}约好上门看{goods}的，一直没人来，预约单就写在{id}下面。", "{goods}屏幕上一直显示{code}，单号是{id}，麻烦看一下是什么意思。", "收件人写成{name}了，应该是我本人，订单{id}，货在{place}。",
    ),
    questions=(
        "那最晚什么时候能有结果？", "要不要我把东西先寄到{place}？", "刚才说的金额是{amount}元，没错吧？", "负责这件事的是谁，有名字吗？", "如果{date}之前还没好，可以直接换新的吗？", "{code}会不会再出现？",
        "这个需要我再补什么材料？", "处理完会有人通知我，还是我自己来查？",
    ),
    recalls=(
        "对了，之前那个{goods}的事，后来定的是多少钱来着？", "还记得{goods}那单吗？单号我找不到了。", "前些天{goods}的那个约定，是哪天截止？", "我要跟家里人交代一下{goods}的结果，你帮我复述一遍。", "上回{goods}是放在哪个点的？谁经手的？",
    ),
    decisions=(
        "已经核实，{id}由{name}跟进，同意补{amount}元，{date}前到账。", "这单{id}可以处理：先送到{place}检测，费用{amount}元由我们承担，{date}之前给您答复。", "查到了，{code}属于质量问题，{goods}给您换新，{date}从{place}发出，换货仍用单号{id}。",
        "金额核对为{amount}元，按{id}原路退回，经手人{name}，最晚{date}。",
    ),
    answers=(
        "是的，{id}这一单定的是{amount}元，截止{date}，经手人是{name}。", "记录里写得很清楚：{goods}在{place}，单号{id}，{date}之前有效。", "没有变，仍然是{amount}元，{name}在{place}处理。", "{code}那次已经登记在{id}下面，如果再出现，直接报这个号就行。",
    ),
    states=("已受理", "检测中", "待取件", "已出库", "排队中", "已完成", "待补充材料"),
)

EN = Lexicon(
    system="You are the service assistant of a small repair and rental company. Check with a tool before you answer, and repeat order ids, amounts and dates exactly.",
    goods=(
        "pressure washer", "cargo bike", "espresso machine", "dehumidifier", "trail tent", "standing desk", "hedge trimmer", "film projector", "sewing machine", "ice maker",
        "bench grinder", "garden shredder", "baby carriage", "tablet stand", "floor sander", "amplifier", "weather station", "sleeping mat", "label printer", "tile cutter",
        "camera gimbal", "electric piano", "bread oven", "leaf blower", "wall heater", "water softener", "ladder", "air compressor", "roof box", "telescope",
    ),
    names=("Ines Marlow", "Tobias Reed", "Hana Petrov", "Callum Ashby", "Priya Nair", "Jonas Weir", "Maeve Dunne", "Oskar Lind", "Rosa Tennant", "Felix Hargrave", "Amara Boyd", "Stellan Craig"),
    places=("the Harbour Road depot", "counter 4", "the Millgate workshop", "the north yard", "the returns desk", "bay 12", "the parts store", "the Fenwick branch", "the night locker", "the service van"),
    details=(
        "It ran well for a week and then began to smell of hot dust.", "I have tried the three steps in the leaflet and nothing changed.", "The box was open on one side when the driver handed it over.", "I work shifts, so a call before noon is no use to me.",
        "Somebody promised to ring back on Friday and nobody did.", "My neighbour has the same model and hers is silent.", "I kept the photographs in case you need them.", "It is not about the money, I only want it to work by the weekend.",
        "Two entries looked alike in our system, but they belong together.", "We look at it first and decide afterwards, so there is no charge for the visit.", "The part comes from another branch and needs three or four days.", "Please leave the cable and the key in the bag.",
        "I wrote the whole story into the file, so you need not tell it twice.", "If it rains the van may be late by an hour or so.", "The old invoice stays as it is until the matter is closed.", "That step is easy to miss, many people ask about it.",
        "The noise is faint, but at night you hear it through the wall.", "Our inspector saw no sign of misuse.", "The deposit went back the same way, banks take their time.", "I would rather have a repair than a new one, if that is possible.",
    ),
    openings=(
        "My {goods} has failed, order {id}, I paid {amount} and got it on {date}.", "Hello, the {goods} from order {id} still sits at {place} and nobody tells me why.", "I want to give the {goods} back, that is {id}, what do I get of the {amount}?",
        "Someone was to look at the {goods} on {date}, nobody came, the booking is under {id}.", "The display of the {goods} says {code}, the order is {id}, what does that mean?", "You put {name} as the receiver of {id}, but the {goods} is mine.",
    ),
    questions=(
        "When will I know at the latest?", "Shall I bring it to {place} myself?", "The amount was {amount}, am I right?", "Who looks after this on your side?", "If it isn't ready by {date}, do I get a new one?", "Can {code} come back?", "Do you need any more papers from me?",
    ),
    recalls=(
        "By the way, what did we settle for the {goods} back then?", "I can't find the number of the {goods} order any more, do you have it?", "Until which day did the promise about the {goods} hold?", "Please sum up the {goods} business, I have to explain it at home.", "Where was the {goods} left, and with whom?",
    ),
    decisions=(
        "I checked: {name} follows up {id}, we agree to {amount}, paid by {date}.", "We can do this for {id}: inspection at {place}, the cost of {amount} is ours, answer by {date}.", "{code} is a fault of the product, so the {goods} is replaced; it leaves {place} on {date} and keeps the number {id}.",
        "The amount is {amount}, refunded under {id} by {name}, on {date} at the latest.",
    ),
    answers=(
        "Yes, {id} was settled at {amount}, valid until {date}, handled by {name}.", "The file says: {goods} at {place}, order {id}, good until {date}.", "Nothing has changed, it is still {amount}, and {name} works on it at {place}.", "{code} is noted under {id}; if it comes back, give that number.",
    ),
    states=("accepted", "in inspection", "ready for pickup", "shipped", "queued", "closed", "waiting for papers"),
    gap=" ",
)

JA = Lexicon(
    system="あなたは生活用品店のサポート担当です。回答の前に必ずツールで確認し、受付番号、金額、日付は記録どおりに伝えてください。",
    goods=(
        "食器洗い機", "電気毛布", "除湿機", "炊飯器", "空気清浄機", "折りたたみ自転車", "電動ドライバー", "加湿器", "コーヒーメーカー", "ロボット掃除機", "望遠鏡", "デスクライト",
        "キャンプ用テント", "体組成計", "電子ピアノ", "ミシン", "浄水ポット", "衣類乾燥機", "プロジェクター", "ベビーカー", "ヘッドホン", "ホットプレート", "ラベルライター", "サーキュレーター",
    ),
    names=("藤代", "三浦", "小野寺", "柏木", "長谷部", "水沢", "北条", "瀬戸", "早見", "岩切", "真壁", "深町"),
    places=("東雲倉庫", "北口サービス窓口", "港南修理センター", "第二配送所", "緑町店", "返品受付カウンター", "夜間ロッカー", "西部営業所"),
    details=(
        "箱の角がつぶれていましたが、中の緩衝材は無事でした。", "昨晩三回試しましたが、途中で必ず止まります。", "説明書の図と実物が少し違っていて分かりにくいです。", "平日は夕方以降でないと電話に出られません。",
        "折り返しの連絡をいただけるはずが、まだ届いていません。", "写真は手元に残してありますので、必要ならお送りします。", "費用よりも、週末までに使えるかどうかが気になります。", "似た記録が二件ありましたが、同じ件だと確認できました。",
        "まず点検をして、その結果でご相談させてください。", "部品は別の拠点から取り寄せるため、三、四日かかります。", "返送の際はコードとリモコンを一緒に入れてください。", "経緯は備考に残しましたので、次回のご説明は不要です。",
        "音は小さいのですが、夜になると隣の部屋まで聞こえます。", "点検では使い方の問題は見つかりませんでした。", "雨の日は到着が少し遅れることがあります。", "できれば交換ではなく修理をお願いしたいです。",
    ),
    openings=(
        "{goods}が動かなくなりました。受付番号は{id}、支払いは{amount}円で、{date}に届いたものです。", "{id}で注文した{goods}が、ずっと{place}で止まっているようです。", "{goods}を返品したいのですが、{id}の{amount}円はいくら戻りますか。",
        "{goods}の画面に{code}と出ます。番号は{id}です。", "{date}に点検の約束でしたが、どなたも来ませんでした。{goods}、{id}の件です。",
    ),
    questions=("いつ頃までに分かりますか。", "{place}へ持ち込んだほうが早いでしょうか。", "金額は{amount}円で間違いないですね。", "担当の方のお名前を教えてください。", "{date}を過ぎたら交換してもらえますか。", "{code}はまた出ることがありますか。"),
    recalls=(
        "そういえば、前の{goods}の件はいくらで決まりましたか。", "{goods}の受付番号を控え忘れました。教えてください。", "{goods}の約束の期限はいつまででしたか。", "{goods}の件を家族に説明したいので、もう一度まとめてください。", "{goods}はどこに預けたままでしたか。",
    ),
    decisions=(
        "確認しました。{id}は{name}が担当し、{amount}円を{date}までにお支払いします。", "{id}は{place}で点検し、費用の{amount}円は当店が負担します。{date}までにご連絡します。", "{code}は製品側の不具合ですので、{goods}を交換します。{date}に{place}から発送、番号は{id}のままです。",
    ),
    answers=("はい、{id}は{amount}円、期限は{date}、担当は{name}です。", "記録では、{goods}は{place}にあり、番号は{id}、{date}まで有効です。", "変更はありません。{amount}円のままで、{name}が{place}で対応しています。", "{code}の件は{id}に登録済みです。再び出た場合はこの番号をお伝えください。"),
    states=("受付済み", "点検中", "引き取り待ち", "発送済み", "順番待ち", "完了", "書類待ち"),
)

KO = Lexicon(
    system="당신은 생활용품 매장의 상담 도우미입니다. 답하기 전에 도구로 확인하고, 접수번호와 금액과 날짜는 기록 그대로 전달하세요.",
    goods=(
        "식기세척기", "전기장판", "제습기", "압력밥솥", "공기청정기", "접이식 자전거", "전동 드라이버", "가습기", "커피머신", "로봇청소기", "천체망원경", "책상 조명",
        "캠핑 텐트", "체중계", "전자피아노", "재봉틀", "정수기", "의류건조기", "빔프로젝터", "유모차", "헤드폰", "전기그릴", "라벨프린터", "서큘레이터",
    ),
    names=("한서윤", "도현우", "류지안", "마석진", "표은채", "남궁현", "설아린", "봉태규", "진하율", "탁민호"),
    places=("동부 물류센터", "북문 서비스 창구", "항만 수리센터", "제2 배송지점", "초록마을점", "반품 접수대", "야간 보관함", "서쪽 영업소"),
    details=(
        "상자 한쪽 모서리가 눌려 있었지만 안쪽 완충재는 멀쩡했습니다.", "어젯밤에 세 번 해 봤는데 매번 중간에 멈춥니다.", "설명서 그림이 실물과 달라서 이해하기 어렵습니다.", "평일에는 저녁 이후에만 전화를 받을 수 있습니다.",
        "다시 연락을 주신다고 했는데 아직 소식이 없습니다.", "사진은 보관하고 있으니 필요하시면 바로 보내겠습니다.", "돈보다 주말 전에 쓸 수 있는지가 더 중요합니다.", "비슷한 기록이 두 건 있었지만 같은 건으로 확인했습니다.",
        "먼저 점검하고 그 결과를 보고 다시 안내하겠습니다.", "부품은 다른 지점에서 가져와야 해서 사나흘 걸립니다.", "보내실 때 전선과 리모컨을 함께 넣어 주세요.", "지금까지의 경과를 메모에 남겼으니 다시 설명하지 않으셔도 됩니다.",
        "소리는 작지만 밤이 되면 옆방까지 들립니다.", "점검 결과 사용상의 문제는 없었습니다.", "비가 오면 도착이 조금 늦어질 수 있습니다.", "가능하면 교환보다 수리를 부탁드립니다.",
    ),
    openings=(
        "{goods} 고장 문의입니다. 접수번호 {id}, 결제 금액 {amount}원, {date}에 받았습니다.", "{id} 번호로 주문한 {goods}, 계속 {place}에 멈춰 있습니다.", "{goods} 반품하고 싶습니다. {id} 건 {amount}원 중에서 얼마를 돌려받나요?",
        "{goods} 화면에 {code} 표시가 뜹니다. 번호는 {id}입니다.", "{date}에 점검을 오신다고 했는데 아무도 오지 않았습니다. {goods}, {id} 건입니다.",
    ),
    questions=("늦어도 언제까지 알 수 있을까요?", "{place}에 직접 가져가는 편이 빠를까요?", "금액은 {amount}원이 맞지요?", "담당하시는 분 성함이 어떻게 되나요?", "{date} 지나면 교환해 주시나요?", "{code} 표시가 또 나올 수 있나요?"),
    recalls=(
        "참, 지난번 {goods} 건은 얼마로 정했었죠?", "{goods} 접수번호를 적어 두지 못했습니다. 알려 주세요.", "{goods} 약속은 언제까지였나요?", "가족에게 설명해야 해서 {goods} 건을 다시 정리해 주세요.", "{goods} 지금 어디에 맡겨져 있나요?",
    ),
    decisions=(
        "확인했습니다. {id} 건은 {name} 담당이고, {amount}원을 {date}까지 지급합니다.", "{id} 건은 {place}에서 점검하고 비용 {amount}원은 저희가 부담합니다. {date}까지 연락드리겠습니다.", "{code} 표시는 제품 문제이므로 {goods} 교환해 드립니다. {date}에 {place}에서 출고하며 번호는 {id} 그대로입니다.",
    ),
    answers=("네, {id} 건은 {amount}원, 기한은 {date}, 담당자는 {name}입니다.", "기록에는 {goods} 위치가 {place}, 번호는 {id}, {date}까지 유효하다고 되어 있습니다.", "변동 없습니다. 그대로 {amount}원이고 {name} 담당자가 {place}에서 처리하고 있습니다.", "{code} 건은 {id} 번호로 등록되어 있습니다. 다시 나오면 이 번호를 말씀해 주세요."),
    states=("접수됨", "점검 중", "수거 대기", "출고됨", "대기 중", "완료", "서류 대기"),
    gap=" ",
)

LEXICONS = {"zh": ZH, "en": EN, "ja": JA, "ko": KO}
